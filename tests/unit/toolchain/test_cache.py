"""Which trees of the cache are deleted, and which are not however old they are."""

import json
import os
import time

import pytest
from jetship import usage
from jetship.errors import ConfigError
from jetship.toolchain.cache import delete_unused, kinds, remember_export, trees
from jetship.toolchain.export import MARKER

DAY = 24 * 3600


@pytest.fixture
def make_tree(store, grow):
    """Make a tree that was used so many days ago, by processes that have ended."""

    def make_tree(name: str, days: float) -> str:
        path = store.tree(name, "0" * 64, lambda root: grow(root, {"file": "x" * 10_000}))
        os.close(usage._held.pop(store.mark(path.name)))
        then = time.time() - days * DAY
        os.utime(store.mark(path.name), (then, then))
        return path.name

    return make_tree


def names(found) -> list[str]:
    return [tree.name for tree in found]


def left(store) -> set[str]:
    return {path.name for path in (store.root / "trees").iterdir()}


def test_trees_are_listed_by_their_last_use(store, make_tree):
    new, old = make_tree("new", 1), make_tree("old", 40)
    found = trees(store)
    assert names(found) == [old, new]
    assert all(10_000 <= tree.size < 100_000 for tree in found)
    assert not any(tree.kept for tree in found)


def test_only_what_was_not_used_lately_is_deleted(store, make_tree):
    new, old = make_tree("new", 29), make_tree("old", 31)
    assert names(delete_unused(store, 30 * DAY)) == [old]
    assert left(store) == {new}
    assert names(delete_unused(store, 0)) == [new]
    assert left(store) == set()


def test_a_deleted_tree_is_made_again(store, make_tree, grow):
    name = make_tree("it", 40)
    delete_unused(store, DAY)
    path = store.tree("it", "0" * 64, lambda root: grow(root, {"file": "again"}))
    assert (path.name, (path / "file").read_text()) == (name, "again")


def test_use_makes_a_tree_new(store, make_tree):
    name = make_tree("it", 40)
    store.tree("it", "0" * 64, lambda _: pytest.fail("it is made"))
    os.close(usage._held.pop(store.mark(name)))
    assert delete_unused(store, DAY) == []


def test_what_is_in_use_stays(store, make_tree):
    name = make_tree("it", 40)
    usage.hold(store.mark(name))
    os.utime(store.mark(name), (1, 1))
    assert [tree.kept for tree in trees(store)] == ["a running process uses it"]
    assert delete_unused(store, 0) == []
    assert left(store) == {name}


def test_a_tree_without_a_mark_is_as_old_as_it_is(store):
    for name, days in (("new", 1), ("old", 40)):
        folder = store.root / "trees" / name
        folder.mkdir(parents=True)
        then = time.time() - days * DAY
        os.utime(folder, (then, then))
    assert names(delete_unused(store, 30 * DAY)) == ["old"]


@pytest.fixture
def exported(store, make_tree, tmp_path):
    """An exported folder, and the names of the trees behind it."""
    part, toolchain = make_tree("gcc", 40), make_tree("toolchain-x", 40)
    root = store.root / "trees" / toolchain
    (root / "buildroot").symlink_to(f"../{part}")
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / MARKER).write_text(json.dumps({"toolchain": str(root), "copy": False}))
    remember_export(store, folder)
    return folder, {part, toolchain}


def test_what_an_exported_folder_links_to_stays_as_long_as_it_is_there(store, make_tree, exported):
    folder, kept = exported
    other = make_tree("other", 40)
    assert names(delete_unused(store, DAY)) == [other]
    assert left(store) == kept
    (folder / MARKER).unlink()
    assert set(names(delete_unused(store, DAY))) == kept


def test_downloads_stay(store, make_tree, tmp_path):
    blob = store.blob("a" * 64, "x.deb")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"x" * 5000)
    os.utime(blob, (1, 1))
    make_tree("it", 40)
    delete_unused(store, 0)
    assert blob.exists()
    sizes = kinds(store)
    assert sizes["downloads"] >= 5000
    assert sizes["trees"] < 20_000


def test_what_killed_processes_left_is_deleted_after_a_day(store, make_tree):
    make_tree("it", 1)
    for folder, name in (("trees", ".gone-x"), ("trees", ".made"), ("tmp", "x")):
        (store.root / folder / name / "deep").mkdir(parents=True)
    delete_unused(store, DAY * 30)
    assert (store.root / "trees/.made").exists()
    for path in (*(store.root / "trees").glob(".*"), *(store.root / "tmp").glob("*")):
        os.utime(path, (1, 1))
    delete_unused(store, DAY * 30)
    assert left(store) == {trees(store)[0].name}
    assert list((store.root / "tmp").iterdir()) == []


def test_an_empty_cache_is_nothing(store):
    assert (trees(store), kinds(store), delete_unused(store, 0)) == ([], {}, [])


def test_a_cache_that_is_no_folder_is_told(store):
    store.root.parent.mkdir(parents=True, exist_ok=True)
    store.root.touch()
    with pytest.raises(ConfigError, match="cannot write to the cache"):
        remember_export(store, store.root)
