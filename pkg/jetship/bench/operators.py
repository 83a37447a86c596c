"""jetops' own benchmark, run by an interpreter that has torch and jetops.

jetship needs neither, so its own interpreter usually has none of them.
"""

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jetship
from jetship import console, proc
from jetship.errors import BenchError, ConfigError, ToolMissingError

PAGE = "bench.md"
RESULTS = "bench.json"
MISUSED = 2  # the exit status of a command line that jetops.bench does not take
# Everything in it is for Python 3.6, which boards have.
_ASK = """
import json
found = {}
for name in ("torch", "jetops"):
    try:
        found[name] = [__import__(name).__version__, ""]
    except Exception as exc:
        found[name] = ["", type(exc).__name__ + ": " + str(exc)]
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Wanted:
    """What is to be measured.

    Attributes:
        out: the folder for page, results and plots.
        only: groups of the benchmark, with commas; empty for all.
        compare: older results to compare with, or None.
        quick: fewer cases and samples.
    """

    out: Path
    only: str = ""
    compare: Path | None = None
    quick: bool = False

    @property
    def words(self) -> list[str]:
        """The options of `python -m jetops.bench`, which runs in another folder."""
        words = ["--out", str(self.out.resolve())]
        if self.only:
            words += ["--only", self.only]
        if self.compare is not None:
            words += ["--compare", str(self.compare.resolve())]
        return [*words, "--quick"] if self.quick else words


def measure(python: str, wanted: Wanted) -> Path:
    """Run the benchmark, whose progress goes to stderr; return its page.

    Args:
        python: an interpreter with torch and jetops, by path or name.
        wanted: what it is to do.

    Raises:
        BenchError: it ended without having measured all of jetops.
        ConfigError: there is no such interpreter or file, or a group that the benchmark lacks.
        ToolMissingError: the interpreter has no torch or no jetops.
    """
    if wanted.compare is not None and not wanted.compare.is_file():
        raise ConfigError(
            f"--compare: there is no file {wanted.compare}",
            fix=f"name the {RESULTS} of an earlier run",
        )
    program = _program(python)
    wanted.out.mkdir(parents=True, exist_ok=True)
    require_jetops(program, wanted.out)
    console.step(f"measuring the operators with {program}")
    command: list[str | Path] = [program, "-m", "jetops.bench", *wanted.words]
    before = _state(wanted.out / RESULTS)
    done = proc.run(command, cwd=wanted.out, capture=False)
    page = wanted.out / PAGE
    if done.status == MISUSED:
        raise ConfigError("the benchmark did not take the request, as it says above")
    if not done.ok:
        raise BenchError(
            "not all of jetops could be measured",
            why=f"`{shlex.join(map(str, command))}` ended with exit status {done.status}",
            fix=f"see above; {_saved(wanted.out / RESULTS, before)}",
        )
    return page


def _state(path: Path) -> tuple[int, int] | None:
    """Return what changes when the benchmark puts a new file in the place of an old one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _saved(path: Path, before: tuple[int, int] | None) -> str:
    if _state(path) in (None, before):
        return "nothing of this run was saved"
    return f"what was measured is in {path}"


def results(out: Path) -> Any:
    """Return the results in a folder as machines read them."""
    return json.loads((out / RESULTS).read_text())


def _program(python: str) -> Path:
    found = proc.find(python)
    if found is None:
        raise ConfigError(
            f"--python: there is no program {python}",
            fix="name an interpreter that has torch and jetops, such as .venv/bin/python",
        )
    # With the folder that holds it, as it runs in another one; links of a venv have to stay.
    return found.absolute()


def require_jetops(program: Path, cwd: Path) -> None:
    """Make sure that an interpreter has torch and jetops.

    Raises:
        ToolMissingError: it has not; says with which commands it would have.
    """
    done = proc.run([program, "-c", _ASK], cwd=cwd)
    try:
        found = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError) as error:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise ToolMissingError(
            f"{program} does not run as a Python interpreter",
            why=said[-1] if said else f"it ended with exit status {done.status}",
            fix="name another one with --python",
        ) from error
    (torch, no_torch), (jetops, no_jetops) = found["torch"], found["jetops"]
    if torch and jetops:
        console.note(f"torch {torch}, jetops {jetops}")
        return
    why = f"torch {torch} is there; jetops: {no_jetops}" if torch else no_torch
    raise ToolMissingError(
        f"{program} cannot import {'jetops' if torch else 'torch'}",
        why=why,
        fix=_fix(program, has_torch=bool(torch)),
    )


def _fix(program: Path, *, has_torch: bool) -> str:
    pip = f"{shlex.quote(str(program))} -m pip install"
    torch = f"{pip} torch torchvision setuptools wheel ninja\n       "
    jetops = f"{pip} --no-build-isolation {shlex.quote(f'{sources()}[bench]')}"
    another = (
        ""
        if program != Path(sys.executable).absolute()
        else "\n       or name an interpreter that has both: invoke bench --ops --python PYTHON"
    )
    return f"{'' if has_torch else torch}{jetops}{another}"


def sources() -> str:
    """Return where jetops' sources are: beside jetship in a checkout."""
    folder = Path(jetship.__file__).parents[2] / "csrc"
    return str(folder) if (folder / "jetops").is_dir() else "PATH/TO/A/CHECKOUT/OF/jetship/csrc"
