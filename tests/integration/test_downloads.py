"""Getting a toolchain: once, by one process, by its digests, or not at all."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from jetship import proc
from jetship.store import default_root
from product import (
    PROJECTS,
    ROOT,
    Ended,
    environment,
    invoke,
    names_in,
    running,
    wait_until,
    wheels_in,
)

NOWHERE = "http://127.0.0.1:9"
NO_INDEX = {
    "PIP_CONFIG_FILE": os.devnull,
    "PIP_INDEX_URL": f"{NOWHERE}/simple",
    "PIP_NO_INDEX": None,
    "PIP_FIND_LINKS": None,
    "PIP_EXTRA_INDEX_URL": None,
}


@pytest.fixture
def words(dist):
    return ("build", "--arch", "6.2", "--project", PROJECTS / "kernel", "--dist", dist)


@pytest.fixture
def downloaded(toolchain, large_folder):
    """Return a new cache without a toolchain, with links to the downloads of a kind."""

    def make(*patterns: str) -> Path:
        for pattern in patterns:
            for path in (default_root() / "sha256").rglob(pattern):
                copy = large_folder / path.relative_to(default_root())
                copy.parent.mkdir(parents=True)
                copy.symlink_to(path)
        return large_folder

    return make


PARTS = ["gcc-11", "sysroot-bookworm", "cuda-11.8", "torch-2.7.1-cp311"]  # in their order
TOOLCHAIN = "toolchain-debian-12"


def published(cache: Path) -> list[str]:
    """Return what is in the cache for good: the names of parts and toolchains, in order.

    What is half-made has another name, and makes this fail. Wheels, the environments that they
    were built in and the tables of symbols that checks read are there as well.
    """
    names = [
        name.rpartition("-")[0]
        for name in names_in(cache / "trees")
        if not name.startswith(("wheel-", "buildenv-", "symbols-"))
    ]
    return sorted(names, key=[*PARTS, TOOLCHAIN].index)


def begun(cache: Path) -> bool:
    """Tell whether something is being written below the cache's scratch folder."""
    return any(path.is_file() for path in (cache / "tmp").rglob("*"))


def test_two_builds_at_once_on_an_empty_cache(large_folder, dist):
    cache = {"JETSHIP_CACHE": str(large_folder)}
    words = ("build", "--project", PROJECTS / "kernel", "--dist", dist)
    with (
        running(*words, "--arch", "6.2", **cache) as first,
        running(*words, "--arch", "7.2", **cache) as second,
    ):
        said = [first.end().good().stderr, second.end().good().stderr]
    lines = [line.strip() for text in said for line in text.splitlines()]
    made = [line for line in lines if line.startswith("preparing ") and line.endswith(" (once)")]
    assert len(made) == len(set(made)) == len(PARTS)
    assert any("another jetship prepares gcc-11" in text for text in said)
    assert len(wheels_in(dist)) == 2
    assert published(large_folder) == [*PARTS, TOOLCHAIN]
    assert names_in(large_folder / "tmp") == []
    # And now that it is there, nothing is asked of the network for it.
    again = invoke("check", *wheels_in(dist), **cache, JETSHIP_DEBIAN_MIRROR=NOWHERE).good()
    assert "preparing" not in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_download_that_is_stopped_leaves_nothing(large_folder, words, number):
    with running(*words, JETSHIP_CACHE=str(large_folder)) as task:
        wait_until(lambda: begun(large_folder), "the first download")
        task.send(number)
        done = task.end()
        assert task.programs() == []
    assert done.status == 130
    assert "Traceback" not in done.stderr
    assert published(large_folder) == []
    assert names_in(large_folder / "tmp") == []


def test_a_preparation_that_is_killed_blocks_no_later_one(downloaded, words):
    cache = downloaded("*.deb", "*.whl")
    with running(*words, JETSHIP_CACHE=str(cache)) as task:
        wait_until(lambda: begun(cache), "the unpacking")
        task.send(signal.SIGKILL)
        task.end()
    # A part is renamed when it is finished; until then it has a name that nobody looks for.
    assert [name for name in names_in(cache / "trees") if not name.startswith(".gcc-11-")] == []
    done = invoke(*words, JETSHIP_CACHE=str(cache), JETSHIP_DEBIAN_MIRROR=NOWHERE).good()
    assert "preparing" in done.stderr
    assert published(cache) == [*PARTS, TOOLCHAIN]


def test_no_debian_mirror(large_folder, words, dist):
    done = invoke(*words, JETSHIP_CACHE=str(large_folder), JETSHIP_DEBIAN_MIRROR=NOWHERE)
    error = done.one_error(5)
    assert "cannot read the package lists of Debian bookworm" in error
    assert "127.0.0.1:9" in error
    assert "check the network" in error
    assert (published(large_folder), wheels_in(dist)) == ([], [])


def test_no_debian_mirror_as_json(large_folder, words):
    variables = {"JETSHIP_CACHE": str(large_folder), "JETSHIP_DEBIAN_MIRROR": NOWHERE}
    done = invoke(*words, "--json", **variables)
    done.one_error(5)
    (row,) = done.json["wheels"]
    assert "package lists" in row["error"]["what"]
    assert row["error"]["exit_code"] == 5


def test_no_package_index(downloaded, words, dist):
    cache = downloaded("*.deb")
    error = invoke(*words, JETSHIP_CACHE=str(cache), **NO_INDEX).one_error(5)
    assert "pip could not download nvidia-cuda" in error
    assert "the package index does not answer" in error
    assert "check the network" in error
    assert names_in(cache / "tmp") == []
    assert (published(cache), wheels_in(dist)) == (["gcc-11", "sysroot-bookworm"], [])


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of jetship whose lock file may be changed."""
    folder = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "pkg", folder / "pkg", ignore=ignored)
    shutil.copytree(ROOT / "toolchains", folder / "toolchains")
    return folder


def change_digest(checkout: Path, part: str, part_of_name: str) -> str:
    """Change one digit of a digest in a part's lock file, and return the digest as it was."""
    lock = checkout / f"toolchains/locks/{part}.yaml"
    lines = lock.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines) if part_of_name in line]
    before, digest = lines[number].split("sha256: ")
    changed = ("0" if digest[0] != "0" else "1") + digest[1:]
    lines[number] = f"{before}sha256: {changed}"
    lock.write_text("\n".join(lines) + "\n")
    return digest[:64]


def run_in(checkout: Path, *words: str | Path, cache: Path) -> Ended:
    argv = [sys.executable, "-c", "from jetship.tasks.main import program; program.run()", *words]
    env = environment(PYTHONPATH=str(checkout / "pkg"), JETSHIP_CACHE=str(cache))
    done = proc.run(argv, env=env, cwd=checkout)
    return Ended(done.status, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("part", "name"), [("gcc-11", "libcc1-0_"), ("cuda-11.8", "nvidia_cuda_runtime_cu11-")]
)
def test_a_download_with_another_digest_is_refused(  # noqa: PLR0917
    checkout, downloaded, words, dist, part, name
):
    cache = downloaded("*.deb", "*.whl")
    right = change_digest(checkout, part, f"file: {name}")
    error = run_in(checkout, *words, cache=cache).one_error(5)
    assert "another digest than the lock file" in error
    assert right in error
    assert "do not trust" in error
    assert (published(cache), wheels_in(dist)) == (PARTS[: PARTS.index(part)], [])
    assert names_in(cache / "tmp") == []


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Mount a disk of `size` on a folder."""
    folder.mkdir(exist_ok=True)
    mounted = proc.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder])
    assert mounted.ok, f"this test needs root, to mount a small disk: {mounted.stderr}"
    try:
        yield folder
    finally:
        assert proc.run(["umount", folder]).ok


@pytest.mark.parametrize("size", ["4k", "60m", "150m"])
def test_a_disk_that_is_full_before_all_is_downloaded(tmp_path, words, dist, size):
    with small_disk(tmp_path / "disk", size) as cache:
        error = invoke(*words, JETSHIP_CACHE=str(cache)).one_error(5)
        assert published(cache) == []
        assert names_in(cache / "tmp") == []
    assert "JETSHIP_CACHE" in error
    assert wheels_in(dist) == []


@pytest.mark.parametrize("size", ["100m", "340m", "600m", "800m"])
def test_a_disk_that_is_full_before_all_is_unpacked(downloaded, tmp_path, words, size):
    blobs = downloaded("*.deb", "*.whl") / "sha256"
    with small_disk(tmp_path / "disk", size) as cache:
        (cache / "sha256").symlink_to(blobs)
        error = invoke(*words, JETSHIP_CACHE=str(cache)).one_error(5)
        assert published(cache) == PARTS[: len(published(cache))]
        assert TOOLCHAIN not in published(cache)
        assert names_in(cache / "tmp") == []
    assert "JETSHIP_CACHE" in error


@pytest.mark.parametrize("size", ["4k", "64k"])
def test_a_disk_that_is_full_while_a_project_is_built(toolchain, tmp_path, words, dist, size):
    with small_disk(tmp_path / "disk", size) as cache:
        (cache / "trees").symlink_to(toolchain.root.parent)
        error = invoke(*words, "--rebuild", JETSHIP_CACHE=str(cache)).one_error(5)
        assert names_in(cache / "tmp") == []
    assert "JETSHIP_CACHE" in error
    assert wheels_in(dist) == []


def test_a_dist_on_a_full_disk(toolchain, tmp_path):
    words = ("build", "--arch", "6.2", "--project", PROJECTS / "kernel")
    with small_disk(tmp_path / "disk", "4k") as disk:
        error = invoke(*words, "--dist", disk / "dist").one_error(5)
        assert wheels_in(disk) == []
    assert "No space left on device" in error
    assert "--dist" in error


def test_a_cache_that_is_no_folder(words):
    error = invoke(*words, JETSHIP_CACHE=os.devnull).one_error(2)
    assert "cannot write to the cache: Not a directory" in error
