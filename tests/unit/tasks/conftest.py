import pytest
from jetship.tasks.main import program


@pytest.fixture
def call(capsys):
    """Run a command line of jetship in this process; returns exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = 0
        try:
            program.run(["jetship", *words])
        except SystemExit as left:
            code = left.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call
