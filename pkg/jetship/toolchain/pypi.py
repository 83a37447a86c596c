"""Wheels through pip, for the build machine or for the target, checked against the lock."""

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

from jetship import proc
from jetship.errors import DownloadError, ToolMissingError
from jetship.store import Store, sha256_of
from jetship.targets.parts import WheelSource
from jetship.toolchain.lock import Locked
from jetship.toolchain.progress import watch_folder

# pip matches platform tags literally, so every manylinux level that a build may carry is named.
MANYLINUX_GLIBC_MINORS = range(17, 40)
SHOWN_VERSIONS = 5
NO_ANSWER = "the package index does not answer"


def fetch(store: Store, source: WheelSource, files: Sequence[Locked]) -> list[Path]:
    """Return the paths of locked wheels in the cache, downloading what is missing.

    Raises:
        DownloadError: no network, no such file, wrong digest, or a full disk.
    """
    missing = [item for item in files if not store.holds(item.sha256, item.file)]
    if missing:
        name = "+".join(sorted(item.name for item in missing))[:80]
        with store.locked(f"pip-{name}"), store.scratch() as scratch:
            lines = [f"{item.name}=={item.version} --hash=sha256:{item.sha256}" for item in missing]
            total = sum(item.size for item in missing)
            title = f"{len(missing)} wheels" if len(missing) > 1 else missing[0].file[:40]
            with watch_folder(scratch, total_bytes=total, title=title):
                _download(source, lines, scratch, "--require-hashes")
            for item in missing:
                store.add(scratch / "wheels" / item.file, item.sha256)
    return [store.blob(item.sha256, item.file) for item in files]


def lock_source(store: Store, source: WheelSource) -> tuple[Locked, ...]:
    """Download a source's wheels, and return what to write into the lock file.

    Raises:
        DownloadError: pip finds no such wheel.
    """
    with store.scratch() as scratch:
        _download(source, list(source.requirements), scratch)
        locked = []
        for path in sorted((scratch / "wheels").glob("*.whl")):
            name, version, _, _ = parse_wheel_filename(path.name)
            digest = sha256_of(path)
            item = Locked(
                name=canonicalize_name(name),
                version=str(version),
                file=path.name,
                sha256=digest,
                size=path.stat().st_size,
            )
            store.add(path, digest)
            locked.append(item)
    return tuple(locked)


def _download(
    source: WheelSource, requirements: Sequence[str], scratch: Path, *options: str
) -> None:
    listed = scratch / "requirements.txt"
    listed.write_text("\n".join(requirements) + "\n")
    (scratch / "tmp").mkdir()
    # pip downloads into TMPDIR first; below `scratch` it counts as progress and is on the same
    # disk as the cache.
    env = {**os.environ, "TMPDIR": str(scratch / "tmp"), "LC_ALL": "C.UTF-8"}
    done = proc.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"),
            *("--only-binary=:all:", "--disable-pip-version-check", "--retries", "2"),
            *("--progress-bar", "off", "--dest", scratch / "wheels", "--requirement", listed),
            *options,
            *_tags(source),
        ],
        env=env,
    )
    if not done.ok:
        raise _error(source, requirements, done, locked=bool(options))


def _tags(source: WheelSource) -> list[str]:
    machine = source.machine
    tags = [f"manylinux_2_{minor}_{machine}" for minor in reversed(MANYLINUX_GLIBC_MINORS)]
    tags += [f"manylinux2014_{machine}", f"linux_{machine}", "any"]
    words = ["--implementation", "cp", "--python-version", source.python]
    for abi in (source.abi, "abi3", "none"):
        words += ["--abi", abi]
    for tag in tags:
        words += ["--platform", tag]
    return words


def pip_reason(output: str) -> str:
    """Return why pip failed, out of what it printed.

    Of an index that does not answer pip warns, and its error then says that there is no such
    version; the warning is the reason.
    """
    broken = re.findall(r"after connection broken by '(.+)': ", output)
    if broken:
        reason = broken[-1].rpartition(": ")[2].rstrip("'\")")
        return f"{NO_ANSWER}: {reason}"
    said = [line for line in output.splitlines() if line.startswith("ERROR")]
    return "; ".join(line.removeprefix("ERROR: ") for line in said[-2:])


def _error(
    source: WheelSource, requirements: Sequence[str], done: proc.Finished, *, locked: bool
) -> DownloadError | ToolMissingError:
    if "No module named pip" in done.stderr:
        return ToolMissingError(
            f"{sys.executable} has no pip",
            fix=f"{sys.executable} -m ensurepip, or install jetship into a venv made with pip",
        )
    names = ", ".join(line.split()[0] for line in requirements)
    if "DO NOT MATCH THE HASHES" in done.stderr:
        got = re.search(r"Got\s+([0-9a-f]{64})", done.stderr)
        return DownloadError(
            f"the package index serves a file with another digest than the lock file: {names}",
            why=f"downloaded sha256 {got[1]}" if got else "",
            fix="do not trust that index; if the lock file is out of date, renew it with "
            "`invoke pins --part NAME`",
        )
    if "No space left" in done.stderr:
        return DownloadError(
            f"pip could not download {names}",
            why="the disk is full",
            fix="free some space, or set JETSHIP_CACHE to a folder on a larger disk",
        )
    return _no_such_version(source, names, done.stderr, locked=locked) or DownloadError(
        f"pip could not download {names}",
        why=pip_reason(done.stderr) or done.stderr[-300:],
        fix="check the network and pip's settings, then run the same command again",
    )


def _no_such_version(
    source: WheelSource, names: str, said: str, *, locked: bool
) -> DownloadError | None:
    """Return an error where the index answers, and what is asked for is not on it."""
    unfit = re.search(r"because these package versions have conflicting|ResolutionImpossible", said)
    listed = re.search(r"satisfies the requirement (\S+) .*\(from versions: (.*)\)", said)
    if "after connection broken" in said or not (unfit or listed):
        return None
    where = f"for {source.abi} on {source.machine}"
    have = listed[2].split(", ") if listed else []
    if unfit:
        why = "pip's settings have a constraint that excludes it, or the requirements contradict"
    elif have == ["none"]:
        why = "it has no version of that name at all for this Python and machine"
    else:
        why = f"it has {', '.join(have[-SHOWN_VERSIONS:])}"
    fix = "correct the name or version in the part's description, or the index in pip's settings"
    return DownloadError(
        f"the package index has no wheel of {listed[1] if listed else names} {where}",
        why=why,
        fix="the index has other versions only: renew the lock file with `invoke pins --part NAME`"
        if locked and have and have != ["none"]
        else fix,
    )
