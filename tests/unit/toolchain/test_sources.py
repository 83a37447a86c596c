"""Parts from their lock files to folders of the cache."""

import hashlib

import pytest
from jetship.errors import ConfigError, DownloadError
from jetship.targets.parts import DebianSource, NamedPart, Part, WheelSource
from jetship.toolchain import debian, layout, pypi, sources
from jetship.toolchain.lock import Lock, Locked, lock_path, read_lock, write_lock
from jetship.toolchain.sources import (
    UNPACKED_AT,
    download_bytes,
    has_part,
    lock_part,
    make_part,
    unpack_wheels,
)

DEBIAN = DebianSource(suite="bookworm", architecture="arm64", install=("libc6-dev",))
WHEELS = WheelSource(
    machine="aarch64", requirements=("MarkupSafe==3.0.2", "typing_extensions==4.12.2")
)
PART = Part(kind="sysroot", title="a part", debian=(DEBIAN,), wheels=(WHEELS,))


def item(name: str, version: str = "1", sha256: str = "") -> Locked:
    digest = sha256 or hashlib.sha256(name.encode()).hexdigest()
    return Locked(name=name, version=version, file=f"{name}_all.deb", sha256=digest, size=1)


def lock_of(*wheels: Locked, **more: tuple[Locked, ...]) -> Lock:
    rows = {
        "debian/bookworm/arm64": (item("libc6"),),
        "wheels/aarch64/cp311": wheels
        or (item("markupsafe", "3.0.2"), item("typing-extensions", "4.12.2")),
    }
    return Lock(sources=rows | more)


@pytest.fixture
def named(tmp_path) -> NamedPart:
    """A part whose description and lock file are in a folder of the test's own."""
    folder = tmp_path / "toolchains"
    write_lock("part", lock_of(), folder)
    return NamedPart("part", PART, folder / "parts/part.yaml", folder)


@pytest.fixture
def fetched(monkeypatch, make_deb, make_wheel_file):
    """What is downloaded for the part; counts how often that is asked for."""
    package = make_deb("libc6", {"usr/lib/libc.so.6": "libc"})
    wheel = make_wheel_file("markupsafe", {"markupsafe/x.py": "1"})
    asked = []

    def answer(files):
        def fetch(_store, source, locked):
            asked.append((source, [one.name for one in locked]))
            return files

        return fetch

    monkeypatch.setattr(debian, "fetch", answer([package]))
    monkeypatch.setattr(pypi, "fetch", answer([wheel]))
    return asked


def test_a_part_is_made_once_of_what_its_lock_file_names(store, named, fetched, monkeypatch):
    merged = []

    def lay_out(folder, _root):
        merged.extend(sorted(path.name for path in folder.iterdir()))

    monkeypatch.setitem(layout.LAYOUTS, "sysroot", lay_out)
    assert not has_part(named, store)
    made = make_part(named, store)
    assert made.part == PART
    assert made.path.is_relative_to(store.root / "trees")
    assert merged == ["debian-bookworm-arm64", "wheels-aarch64-cp311"]
    assert fetched == [(DEBIAN, ["libc6"]), (WHEELS, ["markupsafe", "typing-extensions"])]
    assert has_part(named, store)
    assert make_part(named, store) == made
    assert len(fetched) == 2
    assert list((store.root / "tmp").iterdir()) == []


def test_a_part_that_cannot_be_laid_out_leaves_nothing(store, named, fetched, monkeypatch):
    def fail(*_):
        raise DownloadError("no")

    monkeypatch.setitem(layout.LAYOUTS, "sysroot", fail)
    with pytest.raises(DownloadError):
        make_part(named, store)
    assert not has_part(named, store)
    assert list((store.root / "trees").iterdir()) == []
    assert list((store.root / "tmp").iterdir()) == []


def test_a_part_is_another_when_a_file_changes(named):
    before = sources._digest(PART, lock_of())
    assert before == sources._digest(PART, lock_of())
    more = item("more")
    changed = item("libc6", sha256="0" * 64)
    for files in ((item("libc6"), more), (changed,), (more,)):
        assert sources._digest(PART, lock_of(**{"debian/bookworm/arm64": files})) != before
    moved = lock_of(**{"debian/bookworm/amd64": (item("libc6"),)})
    assert sources._digest(PART, moved) != before


def test_a_part_is_another_when_the_recipe_or_its_kind_changes(monkeypatch):
    before = sources._digest(PART, lock_of())
    assert sources._digest(PART.model_copy(update={"kind": "base"}), lock_of()) != before
    assert sources._digest(PART.model_copy(update={"title": "x"}), lock_of()) == before
    real = sources.inspect.getsource
    for module in (layout, debian, sources):
        monkeypatch.setattr(
            sources.inspect, "getsource",
            lambda asked, module=module: real(asked) + ("#" if asked is module else ""),
        )  # fmt: skip
        assert sources._digest(PART, lock_of()) != before


@pytest.mark.parametrize(
    ("lock", "differing"),
    [
        (lock_of(item("markupsafe", "3.0.2")), "typing-extensions==4.12.2"),
        (lock_of(item("markupsafe", "3.0.1"), item("typing-extensions", "4.12.2")), "3.0.1"),
        (lock_of(**{"debian/trixie/arm64": (item("x"),)}), "debian/trixie/arm64"),
        (Lock(sources={"wheels/aarch64/cp311": (item("a"),)}), "debian/bookworm/arm64"),
    ],
)
def test_a_lock_that_is_of_another_part_is_refused(store, named, fetched, lock, differing):
    write_lock("part", lock, named.folder)
    with pytest.raises(
        ConfigError, match=r"the lock file of part does not fit .*part\.yaml"
    ) as told:
        make_part(named, store)
    assert differing in told.value.why
    assert "invoke pins --part part" in told.value.fix
    assert fetched == []


def test_a_part_without_a_lock_is_not_there_and_cannot_be_made(store, named, fetched):
    lock_path("part", named.folder).unlink()
    assert not has_part(named, store)
    with pytest.raises(ConfigError, match="does not exist"):
        make_part(named, store)
    users = NamedPart("part", PART, named.folder / "boards.yaml", named.folder)
    with pytest.raises(ConfigError, match="has no lock file") as caught:
        make_part(users, store)
    assert "--targets-file" in caught.value.fix


def test_a_new_lock_asks_for_every_source(store, named, monkeypatch):
    monkeypatch.setattr(debian, "lock_source", lambda _, source: (item(source.suite),))
    monkeypatch.setattr(pypi, "lock_source", lambda _, source: (item(source.machine),))
    assert lock_part(named, store).sources == {
        "debian/bookworm/arm64": (item("bookworm"),),
        "wheels/aarch64/cp311": (item("aarch64"),),
    }


def test_wheels_are_unpacked_side_by_side(tmp_path, make_wheel_file):
    one = make_wheel_file("one", {"one/x.py": "1", "one.dist-info/RECORD": ""})
    two = make_wheel_file("two", {"two/x.py": "2"})
    unpack_wheels([one, two], tmp_path / "site")
    assert (tmp_path / "site/one/x.py").read_text() == "1"
    assert (tmp_path / "site/two/x.py").read_text() == "2"


def test_of_wheels_only_the_headers_may_be_unpacked(tmp_path, make_wheel_file):
    wheel = make_wheel_file("one", {
        "nvidia/cublas/include/cublas_v2.h": "1", "nvidia/cublas/lib/libcublas.so.11": "2",
        "nvidia/include": "3",
    })  # fmt: skip
    unpack_wheels([wheel], tmp_path / "site", only="include")
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["cublas_v2.h"]


def test_the_download_of_a_part_is_the_sum_of_its_files(catalog):
    part = catalog.part("cuda-math-11.8")
    files = read_lock(part.name).sources["wheels/aarch64/cp311"]
    assert len(files) == 3
    assert download_bytes(part) == sum(item.size for item in files)


def test_a_damaged_wheel_is_named(tmp_path):
    (tmp_path / "bad.whl").write_text("x")
    with pytest.raises(DownloadError, match=r"bad\.whl cannot be unpacked"):
        unpack_wheels([tmp_path / "bad.whl"], tmp_path / "site")


def test_all_files_of_wheels_have_one_time_whenever_they_were_unpacked(tmp_path, make_wheel_file):
    wheel = make_wheel_file("one", {"one/x.h": "1", "one/deep/y.h": "2"})
    unpack_wheels([wheel], tmp_path / "site")
    files = [path for path in (tmp_path / "site").rglob("*") if path.is_file()]
    assert {path.stat().st_mtime for path in files} == {UNPACKED_AT}
