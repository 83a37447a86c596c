import errno
import hashlib
import multiprocessing
import os
import shutil
import subprocess  # noqa: TID251 - a process that is killed in the middle
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from jetship import store as store_module
from jetship import usage
from jetship.errors import ConfigError, DownloadError
from jetship.store import Store, default_root, is_left_behind, sha256_of, write_atomically

DIGEST = hashlib.sha256(b"data").hexdigest()


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def nothing(_: Path) -> None:
    """Make an empty tree."""


def downloaded(folder: Path, data: bytes = b"data") -> Path:
    path = folder / "thing.deb"
    path.write_bytes(data)
    return path


def test_the_cache_is_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("JETSHIP_CACHE", str(tmp_path / "x"))
    assert default_root() == tmp_path / "x"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JETSHIP_CACHE", "relative")
    assert default_root() == tmp_path / "relative"
    monkeypatch.setenv("JETSHIP_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_root() == tmp_path / "xdg/jetship"


def test_the_digest_of_a_file_longer_than_a_chunk(tmp_path):
    data = bytes(range(256)) * (2 * store_module.CHUNK_BYTES // 256) + b"rest"
    path = downloaded(tmp_path, data)
    assert sha256_of(path) == hashlib.sha256(data).hexdigest()


def test_an_added_file_is_found_by_its_digest_and_cannot_be_written_to(store, tmp_path):
    source = downloaded(tmp_path)
    path = store.add(source, DIGEST)
    assert path == store.root / "sha256" / DIGEST[:2] / DIGEST / "thing.deb"
    assert path == store.blob(DIGEST, "thing.deb")
    assert path.read_bytes() == b"data"
    assert path.stat().st_mode & 0o777 == 0o444
    assert not source.exists()


def test_the_same_file_may_be_added_again(store, tmp_path):
    first = store.add(downloaded(tmp_path), DIGEST)
    assert store.add(downloaded(tmp_path), DIGEST) == first
    assert first.read_bytes() == b"data"


def test_a_file_with_another_digest_is_deleted_and_refused(store, tmp_path):
    source = downloaded(tmp_path, b"evil")
    with pytest.raises(DownloadError, match=r"thing\.deb has another digest") as caught:
        store.add(source, DIGEST)
    assert DIGEST in caught.value.why
    assert hashlib.sha256(b"evil").hexdigest() in caught.value.why
    assert "invoke pins --part" in caught.value.fix
    assert not source.exists()
    assert not store.root.exists()


def test_a_file_that_did_not_come_is_named(store, tmp_path):
    with pytest.raises(DownloadError, match=r"thing\.deb did not come") as caught:
        store.add(tmp_path / "thing.deb", DIGEST)
    assert "invoke pins --part" in caught.value.fix


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "new/file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert files_below(tmp_path) == ["new/file"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(_handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert files_below(tmp_path) == ["file"]


def test_a_tree_is_made_once(store):
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        assert list(folder.iterdir()) == []
        (folder / "file").write_text("x")

    tree = store.tree("toolchain", "ab" * 32, make)
    assert tree == store.root / "trees/toolchain-abababababababab"
    assert (tree / "file").read_text() == "x"
    assert store.tree("toolchain", "ab" * 32, make) == tree
    assert len(made) == 1


def test_a_tree_appears_by_rename_when_it_is_complete(store):
    digest = "0" * 64
    final = store.root / "trees" / f"t-{'0' * 16}"

    def make(folder: Path) -> None:
        (folder / "half").touch()
        assert not final.exists()
        assert not store.has_tree("t", digest)
        assert folder.stat().st_dev == store.root.stat().st_dev
        make.inode = folder.stat().st_ino

    assert store.tree("t", digest, make) == final
    assert store.has_tree("t", digest)
    assert final.stat().st_ino == make.inode


def test_another_digest_is_another_tree(store):
    one = store.tree("t", "1" * 64, nothing)
    two = store.tree("t", "2" * 64, nothing)
    assert one != two
    assert not store.has_tree("t", "3" * 64)


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt, DownloadError])
def test_a_tree_that_fails_leaves_nothing_and_can_be_made_again(store, kind):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise kind("no")

    with pytest.raises(kind):
        store.tree("t", "0" * 64, fail)
    assert not store.has_tree("t", "0" * 64)
    assert [name for name in files_below(store.root) if not name.startswith("locks/")] == []
    assert list((store.root / "trees").iterdir()) == []
    assert store.tree("t", "0" * 64, nothing).is_dir()


def test_what_a_killed_process_left_of_a_tree_is_not_in_the_next_one(store):
    def die(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise SystemExit

    with pytest.raises(SystemExit):
        store.tree("t", "0" * 64, die)
    left = store.root / "trees" / f".t-{'0' * 16}"
    left.mkdir()
    (left / "half").write_text("x")
    tree = store.tree("t", "0" * 64, nothing)
    assert list(tree.iterdir()) == []
    assert [path.name for path in tree.parent.iterdir()] == [tree.name]


def test_a_link_to_a_neighbour_holds_while_a_tree_is_made_and_afterwards(store):
    neighbour = store.tree("n", "1" * 64, lambda folder: (folder / "file").write_text("x"))

    def make(folder: Path) -> None:
        (folder / "link").symlink_to(f"../{neighbour.name}")
        assert (folder / "link/file").read_text() == "x"

    assert (store.tree("t", "0" * 64, make) / "link/file").read_text() == "x"


def test_a_scratch_folder_is_empty_on_the_caches_disk_and_gone_afterwards(store):
    with store.scratch() as first, store.scratch() as second:
        assert first != second
        assert first.is_relative_to(store.root)
        assert list(first.iterdir()) == []
        (first / "x").touch()
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DownloadError),
        (errno.EDQUOT, DownloadError),
        (errno.EROFS, ConfigError),
        (errno.EACCES, ConfigError),
    ],
)
def test_a_full_or_read_only_disk_says_how_to_choose_another(store, number, kind):
    def make(folder: Path) -> None:
        raise OSError(number, "the kernel's words")

    with pytest.raises(kind, match="the kernel's words") as caught:
        store.tree("t", "0" * 64, make)
    assert str(store.root) in caught.value.why
    assert "JETSHIP_CACHE" in caught.value.fix
    assert ("larger disk" in caught.value.fix) == (kind is DownloadError)


def test_a_disk_that_fills_while_a_folder_is_copied_is_told_too(store, monkeypatch, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    (source / "file").touch()

    def full(*names: object, **options: object):
        raise OSError(errno.ENOSPC, "No space left on device", "file")

    monkeypatch.setattr(shutil, "copystat", full)
    with pytest.raises(DownloadError, match="No space left on device") as caught:
        store.tree("t", "0" * 64, lambda folder: shutil.copytree(source, folder / "copy"))
    assert "JETSHIP_CACHE" in caught.value.fix


def test_another_error_of_the_system_stays_what_it_is(store):
    def make(folder: Path) -> None:
        raise OSError(errno.EIO, "broken")

    with pytest.raises(OSError, match="broken"):
        store.tree("t", "0" * 64, make)


def test_a_damaged_file_is_no_longer_held(store, tmp_path):
    source = tmp_path / "x.deb"
    source.write_bytes(b"whole")
    digest = sha256_of(source)
    path = store.add(source, digest)
    assert store.holds(digest, "x.deb")
    path.chmod(0o644)
    path.write_bytes(b"changed")
    assert not store.holds(digest, "x.deb")
    assert not path.exists()


def test_what_nobody_holds_while_he_works_in_it_is_swept_a_day_later(store):
    with store.scratch():
        pass
    old, young = store.root / "tmp/old", store.root / "tmp/young"
    for folder in (old, young):
        folder.mkdir()
    os.utime(old, (0, 0))
    with store.scratch():
        assert young.exists()
        assert not old.exists()


# Works in two folders until it is killed.
WORKER = """\
import sys, time
from pathlib import Path
from jetship.store import Store
with Store(Path(sys.argv[1])).scratch() as one, Store(Path(sys.argv[1])).scratch() as two:
    print("works", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_worked_in_is_swept_at_once_and_no_other(store):
    words = [sys.executable, "-c", WORKER, str(store.root)]
    with store.scratch() as mine, subprocess.Popen(words, stdout=subprocess.PIPE) as worker:
        assert worker.stdout.readline() == b"works\n"
        left = [folder for folder in (store.root / "tmp").iterdir() if folder != mine]
        assert len(left) == 2
        with store.scratch():
            assert all(folder.is_dir() for folder in left)
            assert not any(is_left_behind(folder) for folder in left)
        worker.kill()
        worker.wait()
        assert all(is_left_behind(folder) for folder in left)
        with store.scratch():
            assert not any(folder.exists() for folder in left)
            assert mine.is_dir()


def test_where_folders_cannot_be_locked_their_age_counts(store, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(usage.fcntl, "flock", refuse)
    with store.scratch() as folder:
        assert not is_left_behind(folder)
        os.utime(folder, (0, 0))
        assert is_left_behind(folder)


def test_a_cache_that_cannot_be_locked_says_so(store, monkeypatch):
    def refuse(self, timeout=None):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(store_module.filelock.FileLock, "acquire", refuse)
    with pytest.raises(ConfigError, match="Permission denied") as caught:
        store.tree("t", "0" * 64, nothing)
    assert "JETSHIP_CACHE" in caught.value.fix


def test_the_cache_cannot_be_made_below_a_file(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError) as caught:
        Store(tmp_path / "file").tree("t", "0" * 64, nothing)
    assert "JETSHIP_CACHE" in caught.value.fix


def _prepare(root: Path, counter: Path, ready: Connection) -> None:
    def make(folder: Path) -> None:
        with counter.open("a") as stream:
            stream.write("made\n")
        ready.send("making")
        ready.recv()
        (folder / "file").write_text("x")

    store_module.console.note = lambda _: ready.send("waiting")
    store = Store(root)
    tree = store.tree("t", "0" * 64, make)
    ready.send((tree / "file").read_text())


def test_two_processes_at_once_make_a_tree_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    counter, root = tmp_path / "counter", tmp_path / "store"
    (mine_1, theirs_1), (mine_2, theirs_2) = context.Pipe(), context.Pipe()
    first = context.Process(target=_prepare, args=(root, counter, theirs_1))
    second = context.Process(target=_prepare, args=(root, counter, theirs_2))
    first.start()
    try:
        assert mine_1.recv() == "making"
        second.start()
        assert mine_2.recv() == "waiting"
        mine_1.send("go on")
        assert mine_1.recv() == mine_2.recv() == "x"
        first.join()
        second.join()
        assert (first.exitcode, second.exitcode) == (0, 0)
    finally:
        for process in (first, second):
            if process.is_alive():
                process.kill()
    assert counter.read_text() == "made\n"


def test_who_waits_for_a_lock_is_told_so(store, capsys, monkeypatch):
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with store.locked("thing"):
            held.set()
            let_go.wait()

    said = []
    monkeypatch.setattr(
        store_module.console, "note", lambda text: (said.append(text), let_go.set())
    )
    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with store.locked("thing"):
        other.join()
    assert said == ["another jetship prepares thing; waiting for it"]


def test_a_tree_that_is_dropped_is_made_anew(store):
    made = []

    def make(root: Path) -> None:
        made.append(root)
        (root / "x").touch()

    folder = store.tree("wheel", "0" * 64, make)
    store.drop_tree("wheel", "1" * 64)
    assert store.tree("wheel", "0" * 64, make) == folder
    store.drop_tree("wheel", "0" * 64)
    assert not folder.exists()
    assert store.tree("wheel", "0" * 64, make) == folder
    assert len(made) == 2
