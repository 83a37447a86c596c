import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.toolchain.lock import Lock, Locked, lock_path, read_lock, write_lock
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
PARTS = st.dictionaries(
    st.text("abc_", min_size=1, max_size=4),
    st.lists(ITEMS, min_size=1, max_size=3, unique_by=lambda item: item.name).map(
        lambda items: tuple(sorted(items, key=lambda item: item.name))
    ),
    min_size=1,
    max_size=3,
)


@given(PARTS)
def test_a_lock_is_read_back_as_it_was_written(tmp_path_factory, debian_12, parts):
    folder = tmp_path_factory.getbasetemp()
    lock = Lock(parts=parts)
    path = write_lock(debian_12, lock, folder)
    assert path == lock_path(debian_12, folder)
    assert read_lock(debian_12, folder) == lock


def test_a_lock_is_the_same_bytes_whatever_the_order(tmp_path, debian_12):
    other = ITEM.model_copy(update={"name": "aaa"})
    one = write_lock(debian_12, Lock(parts={"b": (ITEM, other), "a": (ITEM,)}), tmp_path)
    first = one.read_bytes()
    two = write_lock(debian_12, Lock(parts={"a": (ITEM,), "b": (other, ITEM)}), tmp_path)
    assert two.read_bytes() == first
    assert b"invoke lock --platform debian-12" in first


def test_the_lock_files_are_what_their_writer_writes(tmp_path, catalog):
    for platform in catalog.platforms:
        written = write_lock(platform, read_lock(platform), tmp_path)
        assert written.read_bytes() == lock_path(platform).read_bytes()
    assert lock_path(catalog.platforms[0]).is_relative_to(data_dir("toolchains"))


def test_every_locked_package_fits_its_part(catalog):
    for platform in catalog.platforms:
        for name, files in read_lock(platform).parts.items():
            part = platform.toolchain.packages.get(name)
            for item in files:
                assert item.file.endswith(".deb" if part else ".whl")
                assert part is None or item.architecture in (part.architecture, "all")


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


def test_a_lock_with_a_wrong_digest_is_told_with_its_place(tmp_path, debian_12):
    path = write_lock(debian_12, Lock(parts={"torch": (ITEM,)}), tmp_path)
    path.write_text(path.read_text().replace(SHA, "short"))
    with pytest.raises(ConfigError, match=r"debian-12\.yaml:7:\d+: parts\.torch\.0\.sha256"):
        read_lock(debian_12, tmp_path)


def test_a_lock_with_an_unknown_key_is_told_the_nearest(tmp_path, debian_12):
    path = write_lock(debian_12, Lock(parts={"torch": (ITEM,)}), tmp_path)
    path.write_text(path.read_text().replace("sha256:", "sha265:"))
    with pytest.raises(ConfigError, match="did you mean 'sha256'"):
        read_lock(debian_12, tmp_path)


def test_a_lock_of_another_format_or_none_is_refused(tmp_path, debian_12):
    with pytest.raises(ConfigError, match="does not exist"):
        read_lock(debian_12, tmp_path)
    path = write_lock(debian_12, Lock(parts={}), tmp_path)
    path.write_text("version: 2\nparts: {}\n")
    with pytest.raises(ConfigError, match="version"):
        read_lock(debian_12, tmp_path)
