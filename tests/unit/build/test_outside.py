"""Files beside a project; each log below is what a real program said of one that it missed."""

import pytest
from jetship.build.isolated import Seen, build_failed
from jetship.build.outside import find_outside

THERE = {"csrc/op.cpp": "", "csrc/op.h": "", "README.md": "", "my/setup.py": "", "my/src/a.cpp": ""}
MISSED = {
    "cc1plus: fatal error: ../csrc/op.cpp: No such file or directory\ncompilation terminated.":
        "../csrc/op.cpp",
    "src/a.cpp:1:10: fatal error: ../../csrc/op.h: No such file or directory": "../csrc/op.h",
    "{copy}/src/a.cpp:1:10: fatal error: ../../csrc/op.h: No such file or directory":
        "../csrc/op.h",
    "ninja: error: '{work}/csrc/op.cpp', needed by '{copy}/build/op.o', missing and no known rule "
    "to make it": "../csrc/op.cpp",
    "/t/g++ -I../csrc -c src/a.cpp\nsrc/a.cpp:1:10: fatal error: op.h: No such file or directory":
        "../csrc/op.h",
    "/t/nvcc -I{work}/csrc -c a.cu\na.cu:1:10: fatal error: op.h: No such file or directory":
        "../csrc/op.h",
    "FileNotFoundError: [Errno 2] No such file or directory: '../README.md'": "../README.md",
    "error: package directory '../csrc' does not exist": "../csrc",
}  # fmt: skip
OTHERS = [
    "",
    "cc1plus: fatal error: ../csrc/none.cpp: No such file or directory",
    "src/a.cpp:1:10: fatal error: none.h: No such file or directory",
    "src/b.cpp:1:10: fatal error: ../setup.py: No such file or directory",
    "FileNotFoundError: [Errno 2] No such file or directory: '/csrc/op.cpp'",
    "FileNotFoundError: [Errno 2] No such file or directory: '/usr'",
    "src/a.cpp:1:10: error: '../csrc/op.cpp' is no good",
]


@pytest.fixture
def folder(tmp_path, write):
    return write(tmp_path / "home", THERE) / "my"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "cache/tmp/work/sources"


@pytest.mark.parametrize(("log", "missed"), MISSED.items(), ids=lambda text: text[:40])
def test_a_file_beside_the_project_is_named_with_a_way_out(folder, copy, log, missed):
    said = f"running build_ext\n{log}\nmore\n".replace("{copy}", str(copy))
    cause = find_outside(said.replace("{work}", str(copy.parent)), copy, folder)
    assert cause.what.startswith(f"the project needs {missed}, which is outside of its folder")
    name = missed.split("/")[1]
    assert f"`ln -s ../{name} {name}`" in cause.fix


@pytest.mark.parametrize("log", OTHERS, ids=lambda text: text[-40:] or "empty")
def test_what_is_nowhere_or_in_the_project_is_no_such_file(folder, copy, log):
    assert find_outside(log, copy, folder) is None


def test_the_error_of_a_build_says_it(folder, copy, tmp_path):
    log = tmp_path / "log"
    log.write_text(next(iter(MISSED)))
    error = build_failed(Seen(log, copy, folder))
    assert error.what.startswith("the project needs ../csrc/op.cpp, which is outside")
    assert "cc1plus: fatal error: ../csrc/op.cpp" in error.why
    assert error.fix.endswith(f"the whole log is {log}")
