import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.parts import AptSource, NamedPart, Part, read_parts
from jetship.targets.repositories import Repository
from jetship.toolchain.lock import (
    Lock,
    Locked,
    asked_of,
    fits,
    lock_path,
    read_lock,
    require_fitting,
    write_lock,
)
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from pydantic import ValidationError

SHA = "ab" * 32
ITEM = Locked(name="libc6", version="2.36-9", file="libc6_2.36-9_arm64.deb", sha256=SHA, size=7)
# What Debian and PyPI allow in names and versions, digits alone ("20230311") among them.
DIGITS = st.integers(0, 10**9).map(str)
WORDS = st.text("09ab.+~-", min_size=1, max_size=6)
VERSIONS = DIGITS | st.builds("{}:{}{}".format, st.integers(0, 9), DIGITS, WORDS)
ITEMS = st.builds(
    Locked,
    name=st.builds("{}{}".format, DIGITS | st.just("lib"), WORDS) | DIGITS,
    version=VERSIONS,
    file=st.builds("{}_{}_all.deb".format, DIGITS, WORDS),
    sha256=st.integers(0, 2**256 - 1).map("{:064x}".format) | st.just("1" * 64),
    size=st.integers(1, 10**12),
)
SOURCES = st.dictionaries(
    st.text("abc/_", min_size=1, max_size=4),
    st.lists(ITEMS, min_size=1, max_size=3, unique_by=lambda item: item.name).map(
        lambda items: tuple(sorted(items, key=lambda item: item.name))
    ),
    min_size=1,
    max_size=3,
)


@given(SOURCES)
def test_a_lock_is_read_back_as_it_was_written(tmp_path_factory, sources):
    folder = tmp_path_factory.getbasetemp()
    lock = Lock(sources=sources)
    path = write_lock("gcc-11", lock, folder)
    assert path == lock_path("gcc-11", folder) == folder / "locks/gcc-11.yaml"
    assert read_lock("gcc-11", folder) == lock


def test_a_lock_is_the_same_bytes_whatever_the_order(tmp_path):
    other = ITEM.model_copy(update={"name": "aaa"})
    one = write_lock("gcc-11", Lock(sources={"b": (ITEM, other), "a": (ITEM,)}), tmp_path)
    first = one.read_bytes()
    two = write_lock("gcc-11", Lock(sources={"a": (ITEM,), "b": (other, ITEM)}), tmp_path)
    assert two.read_bytes() == first
    assert b"invoke pins --part gcc-11" in first
    assert b"change toolchains/parts/gcc-11.yaml" in first


def test_a_lock_of_a_users_part_says_which_file_describes_that(tmp_path):
    path = write_lock("mine", Lock(sources={"a": (ITEM,)}), tmp_path, described_in="boards.yaml")
    assert "change boards.yaml and" in path.read_text()
    assert read_lock("mine", tmp_path).sources == {"a": (ITEM,)}


def test_the_digests_of_a_lock_name_their_source_in_a_stable_order():
    other = ITEM.model_copy(update={"sha256": "cd" * 32})
    lock = Lock(sources={"b": (ITEM,), "a": (other, ITEM)})
    assert lock.digests == (f"a {'cd' * 32}", f"a {SHA}", f"b {SHA}")


def test_the_lock_files_are_what_their_writer_writes(tmp_path, catalog):
    for name in catalog.parts:
        written = write_lock(name, read_lock(name), tmp_path)
        assert written.read_bytes() == lock_path(name).read_bytes()
        assert lock_path(name).is_relative_to(data_dir("toolchains"))


def test_every_locked_file_fits_its_source(catalog):
    for name in catalog.parts:
        for source, files in read_lock(name).sources.items():
            kind, _, machine = source.split("/")
            assert files
            for item in files:
                if kind == "debian":
                    assert item.architecture in (machine, "all")
                else:
                    assert parse_wheel_filename(item.file)[:2] == (item.name, Version(item.version))


def test_wheels_are_of_the_machine_and_python_of_their_source(catalog):
    for name in catalog.parts:
        for source, files in read_lock(name).sources.items():
            kind, machine, abi = source.split("/")
            for item in files if kind == "wheels" else ():
                tags = parse_wheel_filename(item.file)[3]
                assert {tag.abi for tag in tags} <= {abi, "abi3", "none"}
                assert all(tag.platform == "any" or machine in tag.platform for tag in tags)


@pytest.mark.parametrize(
    ("file", "architecture"),
    [
        ("libc6_2.36-9_arm64.deb", "arm64"),
        ("gcc-11-cross-base_11.3.0-11cross1_all.deb", "all"),
        ("libgmp10_2%3a6.2.1+dfsg1-1.1_amd64.deb", "amd64"),
    ],
)
def test_a_package_carries_its_architecture_in_its_name(file, architecture):
    assert ITEM.model_copy(update={"file": file}).architecture == architecture


@pytest.mark.parametrize("sha", ["", "ab" * 31, "AB" * 32, "ab" * 32 + "\n", "zz" * 32])
def test_what_is_not_a_digest_is_refused(sha):
    with pytest.raises(ValidationError, match="sha256"):
        Locked.model_validate(ITEM.model_dump() | {"sha256": sha})


def test_an_empty_file_cannot_be_locked():
    with pytest.raises(ValidationError, match="size"):
        Locked.model_validate(ITEM.model_dump() | {"size": 0})


def test_a_lock_with_a_wrong_digest_is_told_with_its_place(tmp_path):
    path = write_lock("torch-2", Lock(sources={"wheels": (ITEM,)}), tmp_path)
    path.write_text(path.read_text().replace(SHA, "short"))
    with pytest.raises(ConfigError, match=r"torch-2\.yaml:7:\d+: sources\.wheels\.0\.sha256"):
        read_lock("torch-2", tmp_path)


def test_a_lock_with_an_unknown_key_is_told_the_nearest(tmp_path):
    path = write_lock("torch-2", Lock(sources={"wheels": (ITEM,)}), tmp_path)
    path.write_text(path.read_text().replace("sha256:", "sha265:"))
    with pytest.raises(ConfigError, match="did you mean 'sha256'"):
        read_lock("torch-2", tmp_path)


def test_a_lock_of_another_format_or_none_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        read_lock("torch-2", tmp_path)
    path = write_lock("torch-2", Lock(sources={}), tmp_path)
    path.write_text("version: 2\nsources: {}\n")
    with pytest.raises(ConfigError, match="version"):
        read_lock("torch-2", tmp_path)


@pytest.mark.parametrize("text", [None, "", "sources: [", "sources: {a: [{name: x}]}\n"])
def test_a_missing_or_damaged_lock_says_how_to_mend_it(tmp_path, text):
    path = lock_path("mine", tmp_path)
    path.parent.mkdir()
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match="lock file of mine is missing or damaged") as caught:
        read_lock("mine", tmp_path)
    assert str(path) in caught.value.why
    assert "`invoke pins --part mine --targets-file FILE`" in caught.value.fix
    with pytest.raises(ConfigError) as caught:
        read_lock("no-such-part")
    assert "`invoke pins --part no-such-part`" in caught.value.fix


def named(folder, *, name="mine", **words) -> NamedPart:
    """A part of the user's, of Debian packages with the words that are given, and a wheel."""
    debian = [{"suite": "bookworm", "architecture": "arm64", **words}]
    wheels = [{"machine": "aarch64", "requirements": ["torch==2.7.1"]}]
    part = Part.model_validate(
        {"kind": "sysroot", "title": "mine", "debian": debian, "wheels": wheels}
    )
    return NamedPart(name, part, folder / "boards.yaml", folder)


def locked(part: NamedPart) -> NamedPart:
    files = {source.lock_name: (ITEM,) for source in part.part.sources}
    write_lock(part.name, Lock(sources=files).asked_by(part.part), part.folder)
    return part


def test_a_lock_fits_the_description_that_it_was_made_of_whatever_the_order(tmp_path):
    locked(named(tmp_path, install=["libc6-dev", "7zip"], drop=["lib*san*", "gcc-*"]))
    require_fitting(named(tmp_path, install=["7zip", "libc6-dev"], drop=["gcc-*", "lib*san*"]))
    assert read_lock("mine", tmp_path).asked == {
        "debian/bookworm/arm64": {
            "components": ("debian: main",),
            "install": ("7zip", "libc6-dev"),
            "drop": ("gcc-*", "lib*san*"),
        },
        "wheels/aarch64/cp311": {"python": ("3.11",), "requirements": ("torch==2.7.1",)},
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"install": ["libc6", "zlib1g-dev"]},
         "new in install of debian/bookworm/arm64: zlib1g-dev"),
        ({}, "gone in install of debian/bookworm/arm64: libc6"),
        ({"install": ["libc6"], "drop": ["gcc-*"]}, "new in drop of debian/bookworm/arm64: gcc-*"),
        ({"install": ["libc6"], "components": ["main", "contrib"]},
         "new in components of debian/bookworm/arm64: debian: contrib"),
        ({"alone": ["libc6"], "install": ["libc6"]},
         "new in alone of debian/bookworm/arm64: libc6"),
    ],
)  # fmt: skip
def test_a_lock_of_another_description_is_refused_with_what_differs(tmp_path, words, why):
    locked(named(tmp_path, install=["libc6"]))
    changed = named(tmp_path, **words)
    assert not fits(changed)
    with pytest.raises(ConfigError) as caught:
        require_fitting(changed)
    assert caught.value.what == f"the lock file of mine does not fit {tmp_path}/boards.yaml"
    assert caught.value.why == why
    assert f"pins --part mine --targets-file {tmp_path}/boards.yaml" in caught.value.fix


def test_a_part_without_a_lock_and_a_lock_that_does_not_say_its_words_are_refused(tmp_path):
    part = named(tmp_path, install=["libc6"])
    with pytest.raises(ConfigError, match="has no lock file"):
        require_fitting(part)
    files = {source.lock_name: (ITEM,) for source in part.part.sources}
    write_lock("mine", Lock(sources=files), tmp_path)
    with pytest.raises(ConfigError) as caught:
        require_fitting(part)
    assert caught.value.why == "it does not say what it was made of"
    assert not fits(part)


def test_the_place_of_a_repository_may_change():
    same = {"name": "l4t", "suites": ["r36.4"], "components": ["main"], "signed_by": "key.asc"}
    rows = [{**same, "uri": uri} for uri in ("https://one.example/x", "file:/srv/y")]
    one, other = (
        Part.model_construct(
            apt=(
                AptSource.model_construct(
                    architecture="arm64",
                    install=("libc6",),
                    alone=(),
                    drop=(),
                    repositories=(Repository.model_construct(**row),),
                ),
            )
        )
        for row in rows
    )
    assert asked_of(one) == asked_of(other)
    assert asked_of(one)["apt/l4t-r36.4/arm64"]["components"] == ("l4t: main",)


def test_every_shipped_lock_was_made_of_the_part_that_it_is_of():
    for part in read_parts(data_dir("toolchains")).values():
        require_fitting(part)
