import hashlib
import itertools
import sys
from pathlib import Path

import pytest
from jetship import proc
from jetship.errors import DownloadError, ToolMissingError
from jetship.targets.parts import WheelSource
from jetship.toolchain.lock import Locked
from jetship.toolchain.pypi import fetch, lock_source

TARGET = WheelSource(machine="aarch64", requirements=("ops==1.0",))
BUILD = WheelSource(machine="x86_64", requirements=("ops==1.0",))
OLD = WheelSource(machine="aarch64", python="3.6.9", abi="cp36m", requirements=("ops==1.0",))
OPS = "ops-1.0-cp311-cp311-manylinux2014_aarch64.whl"

# As pip writes them.
NO_NETWORK = """\
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/ops/
ERROR: Could not find a version that satisfies the requirement ops==1.0 (from versions: none)
ERROR: No matching distribution found for ops==1.0
"""  # noqa: E501
VERSION_GONE = """\
ERROR: Could not find a version that satisfies the requirement ops==1.0 (from versions: 0.9, 1.1)
ERROR: No matching distribution found for ops==1.0
"""
UNFIT = """\
ERROR: Cannot install ops==1.0 because these package versions have conflicting dependencies.
ERROR: ResolutionImpossible: for help visit https://pip.example/dependency-conflicts
"""
HASH_MISMATCH = f"""\
ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE. If you have updated the package versions, please update the hashes. Otherwise, examine the package contents carefully; someone may have tampered with them.
    ops==1.0 from file:///ops-1.0-py3-none-any.whl (from -r requirements.txt (line 1)):
        Expected sha256 {"a" * 64}
             Got        {"b" * 64}
"""  # noqa: E501
DISK_FULL = """\
ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device
"""
NO_PIP = f"{sys.executable}: No module named pip\n"


def wheel(name: str = OPS) -> bytes:
    return f"the bytes of {name}".encode()


def locked(file: str = OPS, **changes) -> Locked:
    data = wheel(file)
    project, version = file.split("-")[:2]
    row = {"name": project, "version": version, "file": file, "size": len(data),
           "sha256": hashlib.sha256(data).hexdigest()}  # fmt: skip
    return Locked(**(row | changes))


@pytest.fixture
def index(programs):
    """A pip that has some wheels; it remembers the requirements that it was given."""
    read = []

    def install(*names: str):
        def answer(argv, _options):
            def option(name: str) -> Path:
                return Path(argv[argv.index(name) + 1])

            read.append(option("--requirement").read_text().splitlines())
            option("--dest").mkdir()
            for name in names:
                (option("--dest") / name).write_bytes(wheel(name))
            return proc.Finished(tuple(argv), 0)

        fake = programs(answer)
        fake.read = read
        return fake

    return install


def values(argv, option) -> list[str]:
    return [word for before, word in itertools.pairwise(argv) if before == option]


def test_wheels_are_asked_for_by_hash_and_kept_by_digest(store, index):
    fake = index(OPS)
    item = locked()
    (path,) = fetch(store, TARGET, [item])
    assert path == store.blob(item.sha256, OPS)
    assert path.read_bytes() == wheel()
    assert fake.read == [[f"ops==1.0 --hash=sha256:{item.sha256}"]]
    (argv,) = fake.calls
    assert argv[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--require-hashes", "--no-deps", "--only-binary=:all:"} < set(argv)


def test_what_is_in_the_cache_is_not_downloaded_again(store, index):
    fake = index(OPS)
    fetch(store, TARGET, [locked()])
    fetch(store, TARGET, [locked()])
    assert len(fake.calls) == 1


def test_pip_writes_on_the_caches_disk_only(store, index):
    fake = index(OPS)
    fetch(store, TARGET, [locked()])
    temporary = Path(fake.options[0]["env"]["TMPDIR"])
    assert temporary.is_relative_to(store.root)
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(("source", "machine"), [(TARGET, "aarch64"), (BUILD, "x86_64")])
def test_pip_looks_for_wheels_of_the_machine_that_the_source_is_for(store, index, source, machine):
    fake = index(OPS)
    fetch(store, source, [locked()])
    platforms = values(fake.calls[0], "--platform")
    assert f"manylinux2014_{machine}" in platforms
    assert f"manylinux_2_28_{machine}" in platforms
    assert "any" in platforms
    assert all(one.endswith((machine, "any")) for one in platforms)
    assert values(fake.calls[0], "--abi") == ["cp311", "abi3", "none"]
    assert values(fake.calls[0], "--python-version") == ["3.11"]


def test_pip_looks_for_wheels_of_the_python_that_the_source_is_for(store, index):
    fake = index(OPS)
    fetch(store, OLD, [locked()])
    assert values(fake.calls[0], "--abi") == ["cp36m", "abi3", "none"]
    assert values(fake.calls[0], "--python-version") == ["3.6.9"]


def test_a_wheel_with_another_digest_does_not_enter_the_cache(store, index):
    index(OPS)
    with pytest.raises(DownloadError, match="another digest than the lock file"):
        fetch(store, TARGET, [locked(sha256="0" * 64)])
    assert list(store.root.rglob("*.whl")) == []


def test_another_file_than_the_locked_one_is_noticed(store, index):
    index("ops-1.0-py3-none-any.whl")
    with pytest.raises(DownloadError, match="did not come with the download"):
        fetch(store, TARGET, [locked()])


@pytest.mark.parametrize(
    ("said", "what", "why", "fix"),
    [
        (NO_NETWORK, "could not download ops==1.0", "name resolution", "check the network"),
        (
            VERSION_GONE,
            "the package index has no wheel of ops==1.0 for cp311 on aarch64",
            "it has 0.9, 1.1",
            "invoke pins --part",
        ),
        (HASH_MISMATCH, "another digest", f"downloaded sha256 {'b' * 64}", "do not trust"),
        (DISK_FULL, "could not download ops==1.0", "the disk is full", "JETSHIP_CACHE"),
        ("Killed", "could not download ops==1.0", "Killed", "check the network"),
    ],
)
def test_a_download_that_fails_says_why_and_what_to_do(  # noqa: PLR0917
    store, programs, said, what, why, fix
):
    programs(status=1, stderr=said)
    with pytest.raises(DownloadError) as caught:
        fetch(store, TARGET, [locked()])
    assert what in caught.value.what
    assert why in caught.value.why
    assert fix in caught.value.fix
    assert "--hash" not in caught.value.what
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (VERSION_GONE, "it has 0.9, 1.1"),
        (NO_NETWORK[NO_NETWORK.index("ERROR") :], "it has no version of that name at all"),
        (UNFIT, "a constraint that excludes it"),
    ],
)
def test_a_version_to_lock_that_does_not_exist_is_told(store, programs, said, why):
    programs(status=1, stderr=said)
    with pytest.raises(DownloadError, match=r"has no wheel of ops==1\.0 for cp311") as caught:
        lock_source(store, TARGET)
    assert why in caught.value.why
    assert "correct the name or version" in caught.value.fix
    assert "network" not in caught.value.fix


def test_a_python_without_pip_is_told_how_to_get_it(store, programs):
    programs(status=1, stderr=NO_PIP)
    with pytest.raises(ToolMissingError, match="has no pip") as caught:
        fetch(store, TARGET, [locked()])
    assert "ensurepip" in caught.value.fix


def test_a_lock_holds_what_pip_downloaded_under_normal_names(store, index):
    name = "Typing_Extensions-4.12.2-py3-none-any.whl"
    fake = index(OPS, name)
    assert lock_source(store, TARGET) == (
        locked(name, name="typing-extensions"),
        locked(),
    )
    assert fake.read == [["ops==1.0"]]
    assert "--require-hashes" not in fake.calls[0]
    assert store.blob(locked().sha256, OPS).is_file()
