"""PEP 517 in isolation: build requirements on the build machine, hooks in the cross environment."""

import errno
import os
import re
import subprocess  # noqa: TID251 - only its exception, which `build` raises
import tempfile
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import build
from build.env import DefaultIsolatedEnv
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from jetship import console, proc
from jetship.build.environment import CrossEnvironment, compose
from jetship.errors import BuildError, DownloadError
from jetship.toolchain.pypi import pip_reason

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
_SETUP = "<string>"  # what setuptools calls setup.py when it runs it


def build_wheel(
    sources: Path,
    cross: CrossEnvironment,
    out: Path,
    log: Path,
    *,
    shown_as: Path | None = None,
    constraints: Collection[str] = (),
    requirements: Collection[str] = (),
) -> Path:
    """Build the project in `sources` into a wheel in `out`.

    Args:
        sources: a copy of the project; it is written to.
        cross: the cross environment.
        out: an empty folder for the wheel.
        log: everything that the build prints goes here.
        shown_as: the folder that error messages name instead of `sources`.
        constraints: pip constraints for the build requirements.
        requirements: what to install beside the project's own build requirements.

    Raises:
        BuildError: a hook failed; the compiler's first complaints are in the message.
        DownloadError: a build requirement cannot be installed, or the disk is full.
    """

    def run_hook(
        cmd: Sequence[str], cwd: str | None = None, extra_environ: Mapping[str, str] | None = None
    ) -> None:
        env = compose(os.environ, cross, extra_environ or {})
        env["JETSHIP_SOURCES"] = str(sources.resolve())  # for the compilers of the toolchain
        env["TMPDIR"] = str(temporary)  # nvcc leaves files behind when it is stopped
        words = list(cmd)
        done = proc.run(words, env=env, cwd=Path(cwd) if cwd else None, log=log)
        if not done.ok:
            raise subprocess.CalledProcessError(done.status, words)

    temporary = cross.folder / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    try:
        with DefaultIsolatedEnv() as env:
            builder = build.ProjectBuilder.from_isolated_env(env, sources, runner=run_hook)
            _install(env, {*builder.build_system_requires, *requirements}, constraints, log)
            _install(env, builder.get_requires_for_build("wheel"), constraints, log)
            return Path(builder.build("wheel", out))
    except build.BuildBackendException as error:
        raise build_failed(log, sources=sources, shown_as=shown_as) from error
    except build.BuildException as error:
        raise BuildError(
            "the project cannot be built", why=str(error), fix="mend the project"
        ) from error


def _install(
    env: DefaultIsolatedEnv, requirements: Collection[str], constraints: Collection[str], log: Path
) -> None:
    wanted = [text for text in sorted(requirements) if not _is_torch(text)]
    if not wanted:
        return
    console.note(f"build requirements: {', '.join(wanted)}")
    try:
        env.install(wanted, constraints)
    except subprocess.CalledProcessError as error:
        output = _text(error.stdout) + _text(error.stderr)
        with log.open("a") as stream:
            stream.write(output)
        raise DownloadError(
            f"build requirements cannot be installed: {', '.join(wanted)}",
            why=pip_reason(output) or f"pip's output is in {log}",
            fix="check the network and pip's settings, or the project's [build-system] requires",
        ) from error


def _is_torch(requirement: str) -> bool:
    try:
        return canonicalize_name(Requirement(requirement).name) == ANSWERED_BY_STANDIN
    except InvalidRequirement:
        return False


def build_failed(
    log: Path, *, sources: Path | None = None, shown_as: Path | None = None
) -> BuildError | DownloadError:
    """Return the error of a failed build, with the compiler's own words out of its log.

    Args:
        log: what the build printed.
        sources: the copy that was built; it is gone when people read the error.
        shown_as: the folder that it was copied from.
    """
    text = log.read_text(encoding="utf-8", errors="replace")
    if os.strerror(errno.ENOSPC) in text:
        return DownloadError(
            "the build ran out of disk space",
            why=f"it works in {sources or 'the cache'} and in {tempfile.gettempdir()}",
            fix="free some space, or set JETSHIP_CACHE and TMPDIR to folders on a larger disk; "
            f"the whole log is {log}",
        )
    if sources is not None and shown_as is not None:
        for copied in (sources, sources.resolve()):
            text = text.replace(f"{copied}/", f"{shown_as}/")
    lines = text.splitlines()
    return BuildError(
        "the project did not build",
        why="its own words:\n" + "\n".join(f"    {line}" for line in complaints(lines)),
        fix=f"mend the project; the whole log is {log}",
    )


def complaints(lines: list[str]) -> list[str]:
    """Return the lines of a build log that say why it failed, without setuptools' own frames.

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
    return _shortened(list(deque(_own_frames(lines[end:]) or lines, SHOWN_LINES // 2)))


def _own_frames(traceback: list[str]) -> list[str]:
    """Return a traceback from where it enters setup.py."""
    for number, line in enumerate(traceback):
        frame = _FRAME.match(line)
        if frame and frame["file"] == _SETUP:
            return [text.replace(f'"{_SETUP}"', '"setup.py"') for text in traceback[number:]]
    return []


def _shortened(lines: list[str]) -> list[str]:
    return [line if len(line) <= 400 else line[:400] + " ..." for line in lines if line.strip()]


def _text(data: bytes | str | None) -> str:
    if data is None:
        return ""
    return data if isinstance(data, str) else data.decode("utf-8", "replace")
