"""PEP 517 in isolation: build requirements on the build machine, hooks in the cross environment."""

import errno
import functools
import os
import re
import subprocess  # noqa: TID251 - only its exception, which `build` raises
import tempfile
import warnings
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import build
from pyproject_hooks import BuildBackendWarning

from jetship import proc
from jetship.build.buildenv import build_env
from jetship.build.causes import SETUP, Said, find_cause
from jetship.build.environment import CrossEnvironment, compose
from jetship.build.outside import find_outside
from jetship.build.targetside import names, parsed, with_target_numpy
from jetship.errors import BuildError, DownloadError, JetshipError
from jetship.store import Store
from jetship.targets.model import Platform, Torch

# The stand-in answers for it; a real one would be gigabytes for the wrong machine.
ANSWERED_BY_STANDIN = "torch"
SHOWN_LINES = 40
_COMPLAINT = re.compile(
    r"\berror[: ]|Error:|\bfatal *:|undefined reference|cannot find -l|No such file or directory",
    re.IGNORECASE,
)
# Command lines of compilers, as setuptools, ninja and their errors show them; with a colon behind
# its path ("/…/bin/ld: cannot find -lx") it is the program that speaks.
_COMMAND = re.compile(r"(\[\d+/\d+\] )?/\S+/bin/\S*[^\s:] |error: command '", re.IGNORECASE)
_FRAME = re.compile(r'  File "(?P<file>[^"]+)", line \d+')


@dataclass(frozen=True)
class Limits:
    """What holds a build within bounds.

    `constraints` are pip's for the build requirements, `requirements` are installed beside the
    project's own; `minutes` is how long a hook may take.
    """

    platform: Platform
    constraints: tuple[str, ...] = ()
    requirements: tuple[str, ...] = ()
    minutes: float = 120


def build_wheel(
    sources: Path,
    cross: CrossEnvironment,
    out: Path,
    log: Path,
    *,
    store: Store,
    limits: Limits,
    shown_as: Path | None = None,
) -> Path:
    """Build the project in `sources` into a wheel in `out`.

    Args:
        sources: a copy of the project; it is written to.
        cross: the cross environment.
        out: an empty folder for the wheel.
        log: everything that the build prints goes here.
        store: the cache, for environments with build requirements.
        limits: what may be installed, and how long it may take.
        shown_as: the folder that error messages name instead of `sources`.

    Raises:
        BuildError: a hook failed; the compiler's first complaints are in the message.
        DownloadError: a build requirement cannot be installed, or the disk is full.
    """
    seen = Seen(log, sources, shown_as or sources, jobs=cross.variables["MAX_JOBS"])

    def run_hook(
        within: CrossEnvironment,
        cmd: Sequence[str],
        cwd: str | None = None,
        extra_environ: Mapping[str, str] | None = None,
    ) -> None:
        env = compose(os.environ, within, extra_environ or {})
        env["JETSHIP_SOURCES"] = str(sources.resolve())  # for the compilers of the toolchain
        env["TMPDIR"] = str(temporary)  # nvcc leaves files behind when it is stopped
        words = list(cmd)
        where = Path(cwd) if cwd else None
        done = proc.run(words, env=env, cwd=where, log=log, seconds=limits.minutes * 60)
        if not done.ok:
            raise subprocess.CalledProcessError(done.status, words)

    temporary = cross.folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)

    def builder_with(requirements: Collection[str]) -> build.ProjectBuilder:
        wanted = {*_installable(requirements, limits.platform.torch), *limits.requirements}
        env = build_env(store, wanted, limits.constraints, log)
        within = with_target_numpy(cross, wanted, limits.platform, store)
        runner = functools.partial(run_hook, within)
        return build.ProjectBuilder.from_isolated_env(env, sources, runner=runner)

    # What setuptools would like projects to change is nothing that builds for a target can mend.
    warnings.simplefilter("ignore", BuildBackendWarning)
    try:
        own = build.ProjectBuilder(sources).build_system_requires
        builder = builder_with(own)
        more = builder.get_requires_for_build("wheel")
        if not more <= own:
            builder = builder_with(own | more)
        return Path(builder.build("wheel", out))
    except build.BuildBackendException as error:
        # What `run_hook` itself raises comes out of `build` in this wrapping as well.
        if isinstance(error.exception, proc.TimedOutError):
            raise _took_too_long(limits.minutes, log) from error
        if isinstance(error.exception, (proc.StoppedError, JetshipError)):
            raise error.exception from error
        raise build_failed(replace(seen, status=_status(error.exception))) from error
    except build.BuildException as error:
        raise BuildError(
            "the project cannot be built", why=str(error), fix="mend the project"
        ) from error


def _status(error: Exception) -> int:
    """Return how a hook's process ended, by what `build` or its runner raised.

    One that ends well before its hook does leaves no file with the result.
    """
    if isinstance(error, subprocess.CalledProcessError):
        return error.returncode
    return 0 if isinstance(error, FileNotFoundError) else 1


def _installable(requirements: Collection[str], torch: Torch) -> Iterator[str]:
    """Yield all requirements but torch, which the stand-in answers for.

    Raises:
        BuildError: the project builds with another torch than the target's.
    """
    for text in requirements:
        requirement = parsed(text)
        if requirement is None or not names(requirement, ANSWERED_BY_STANDIN):
            yield text
        elif not torch.satisfies(requirement):
            raise BuildError(
                f"the project builds with {text}, and the target has torch {torch.version}",
                fix="choose a platform with that torch (`invoke targets`), or widen the project's "
                "[build-system] requires",
            )


def _took_too_long(minutes: float, log: Path) -> BuildError:
    return BuildError(
        f"the project did not build within {minutes:g} minutes",
        why=f"it was stopped; the last that it said: {_last_line(log)}",
        fix="allow more with `time_limit_minutes` under `build:` in deploy.yaml, where it is "
        f"only slow; the whole log is {log}",
    )


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line for line in lines if line.strip()]
    return _shortened(said[-1:])[0] if said else "nothing"


@dataclass(frozen=True)
class Seen:
    """What a failed build left to be looked at.

    Args:
        log: what it printed.
        sources: the copy that was built; it is gone when people read the error.
        shown_as: the folder that it was copied from.
        jobs: how many compilers ran at once (MAX_JOBS).
        status: how it ended, as `causes.Said` has it.
    """

    log: Path
    sources: Path
    shown_as: Path
    jobs: str = ""
    status: int = 1


def build_failed(seen: Seen) -> BuildError | DownloadError:
    """Return the error of a failed build, with the compiler's own words out of its log."""
    log, sources = seen.log, seen.sources
    text = log.read_text(encoding="utf-8", errors="replace")
    if os.strerror(errno.ENOSPC) in text:
        return DownloadError(
            "the build ran out of disk space",
            why=f"it works in {sources} and in {tempfile.gettempdir()}",
            fix="free some space, or set JETSHIP_CACHE and TMPDIR to folders on a larger disk; "
            f"the whole log is {log}",
        )
    outside = find_outside(text, sources, seen.shown_as)
    for copied in (sources, sources.resolve()):
        text = text.replace(f"{copied}/", f"{seen.shown_as}/")
    cause = outside or find_cause(Said(text, seen.jobs, seen.status, f"{seen.shown_as}/"))
    return BuildError(
        cause.what if cause else "the project did not build",
        why=(cause and cause.why) or _own_words(text, seen),
        # A log with nothing in it helps nobody.
        fix=(cause.fix if cause else "mend the project")
        + (f"; the whole log is {log}" if text.strip() else ""),
    )


def _own_words(text: str, seen: Seen) -> str:
    if not text.strip():
        status = f", with exit status {seen.status}" if seen.status > 0 else ""
        return f"it ended without a word{status}"
    lines = complaints(text.splitlines(), f"{seen.shown_as}/")
    return "its own words:\n" + "\n".join(f"    {line}" for line in lines)


def complaints(lines: list[str], folder: str = "") -> list[str]:
    """Return the lines of a build log that say why it failed, without setuptools' own frames.

    `folder` is that of the project, as paths of the log name it.

    The first complaint with what follows it is worth more than the end of the log, where
    setuptools and ninja only say that something failed.
    """
    end = next(
        (n for n, line in enumerate(lines) if line.startswith("Traceback (most recent")), len(lines)
    )
    compiler = [line for line in lines[:end] if not _COMMAND.match(line)]
    first = next((n for n, line in enumerate(compiler) if _COMPLAINT.search(line)), None)
    if first is not None:
        return _shortened(compiler[max(0, first - 1) : first + SHOWN_LINES])
    return _shortened(list(deque(_own_frames(lines[end:], folder) or lines, SHOWN_LINES // 2)))


def _own_frames(traceback: list[str], folder: str) -> list[str]:
    """Return a traceback from where it enters setup.py, with the frames of the project alone."""
    kept: list[str] = []
    entered = own = False
    for line in traceback:
        frame = _FRAME.match(line)
        if frame:
            own = frame["file"] == SETUP or bool(folder and frame["file"].startswith(folder))
            entered = entered or frame["file"] == SETUP
        elif not line.startswith("    "):
            own = True  # what was raised, or another traceback that led to it
        if entered and own:
            kept.append(line.replace(f'"{SETUP}"', '"setup.py"'))
    return kept


def _shortened(lines: list[str]) -> list[str]:
    return [line if len(line) <= 400 else line[:400] + " ..." for line in lines if line.strip()]
