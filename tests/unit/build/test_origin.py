"""Where projects come from. The index's part is played here; the real pip is in integration."""

import io
import os
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from jetship import proc
from jetship.build import origin
from jetship.build.origin import SDIST_BACKEND, find_project
from jetship.errors import ConfigError, DownloadError
from jetship.store import sha256_of

FILES = {"ops-1.2/setup.py": "from setuptools import setup\n", "ops-1.2/src/op.cu": "code",
         "ops-1.2/PKG-INFO": "Metadata-Version: 2.1\nName: ops\nVersion: 1.2\n"}  # fmt: skip
NOT_FOUND = (
    "ERROR: Could not find a version that satisfies the requirement ops==9 (from versions: {})\n"
    "ERROR: No matching distribution found for ops==9"
)
NO_SDIST = (
    "ERROR: Cannot install ops==9 because these package versions have conflicting dependencies.\n"
    "ERROR: ResolutionImpossible: for help visit https://pip.example/conflicts"
)
MODES = {".tar.gz": "w:gz", ".tgz": "w:gz", ".tar.bz2": "w:bz2", ".tar.xz": "w:xz"}


@pytest.fixture
def sdist(tmp_path):
    """Write an sdist of a name out of files; the name says how it is packed."""

    def sdist(name: str, files: dict[str, str] = FILES) -> Path:
        path = tmp_path / name
        if name.endswith((".zip", ".whl")):
            with zipfile.ZipFile(path, "w") as archive:
                for member, text in files.items():
                    archive.writestr(member, text)
            return path
        mode = next(mode for suffix, mode in MODES.items() if name.endswith(suffix))
        with tarfile.open(path, mode) as archive:
            for member, text in files.items():
                info = tarfile.TarInfo(member)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        return path

    return sdist


def test_a_folder_is_opened_where_it_is(tmp_path, write, store):
    folder = write(tmp_path / "my_ops", {"setup.py": ""})
    project = find_project(str(folder), store)
    assert (project.folder, project.title) == (folder, "my_ops")


@pytest.mark.parametrize("suffix", [*MODES, ".zip"])
def test_an_sdist_is_unpacked_into_the_cache(sdist, store, suffix, capsys):
    path = sdist(f"ops-1.2{suffix}")
    project = find_project(str(path), store)
    assert project.title == "ops-1.2"
    assert project.folder.is_relative_to(store.root / "trees")
    assert (project.folder / "src/op.cu").read_text() == "code"
    assert f"sha256 {sha256_of(path)}" in capsys.readouterr().err
    assert find_project(str(path), store) == project


def test_an_sdist_that_is_not_named_like_one_has_its_files_name(sdist, store):
    assert find_project(str(sdist("snapshot.tar.gz")), store).title == "snapshot"


def test_another_sdist_of_the_same_name_is_another_project(sdist, store):
    first = find_project(str(sdist("ops-1.2.zip")), store)
    second = find_project(str(sdist("ops-1.2.zip", FILES | {"ops-1.2/more": ""})), store)
    assert first.folder != second.folder


@pytest.mark.parametrize("name", ["ops-1.2.tar.gz", "ops-1.2.zip"])
@pytest.mark.parametrize("member", ["ops-1.2/../../outside", "../outside", "/tmp/jetship-outside"])
def test_nothing_lands_outside_of_the_place_where_an_sdist_is_unpacked(sdist, store, name, member):
    path = sdist(name, {member: "bad", **FILES})
    with pytest.raises(ConfigError, match="outside of the project") as caught:
        find_project(str(path), store)
    assert f"{path} cannot be unpacked: its member {member} would land" in caught.value.what
    assert str(store.root) not in str(caught.value)
    assert not [found for found in store.root.rglob("*") if "outside" in found.name]
    assert not Path("/tmp/jetship-outside").exists()


def test_a_link_out_of_an_sdist_is_not_followed(tmp_path, store):
    path = tmp_path / "ops-1.2.tar.gz"
    secret = tmp_path / "secret"
    secret.mkdir()
    with tarfile.open(path, "w:gz") as archive:
        link = tarfile.TarInfo("ops-1.2/link")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
        for member in ("ops-1.2/link/planted", "ops-1.2/setup.py"):
            archive.addfile(tarfile.TarInfo(member))
    with pytest.raises(ConfigError, match=r"planted lies behind the link ops-1\.2/link"):
        find_project(str(path), store)
    assert list(secret.iterdir()) == []


def special(kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo("ops-1.2/special")
    info.type, info.linkname = kind, link
    return info


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (special(tarfile.FIFOTYPE), "is a named pipe"),
        (special(tarfile.CHRTYPE), "is a device"),
        (special(tarfile.SYMTYPE, "/etc"), "links to /etc, outside of the project"),
        (special(tarfile.SYMTYPE, "../../x"), "links to ../../x, outside of the project"),
        (special(tarfile.LNKTYPE, "../x"), "links to ../x, not in it"),
    ],
)
def test_what_cannot_be_kept_of_an_sdist_is_an_error_and_not_left_out(tmp_path, store, info, why):
    path = tmp_path / "ops-1.2.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("ops-1.2/setup.py"))
        archive.addfile(info)
    with pytest.raises(ConfigError, match="cannot be unpacked") as caught:
        find_project(str(path), store)
    assert why in str(caught.value)
    assert str(store.root / "trees") not in caught.value.what
    assert list((store.root / "trees").iterdir()) == []


def test_links_and_programs_of_an_sdist_are_what_they_were(tmp_path, write, store):
    folder = write(tmp_path / "ops-1.2", {"setup.py": "", "src/op.cu": "code", "tool.sh": "#!"})
    (folder / "tool.sh").chmod(0o555)
    (folder / "sources").symlink_to("src")
    (folder / "src/dangling").symlink_to("../later")
    os.link(folder / "src/op.cu", folder / "src/same.cu")
    os.utime(folder / "src/op.cu", (1e9, 1e9))
    path = tmp_path / "ops-1.2.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, folder.name)
    found = find_project(str(path), store).folder
    assert (found / "sources").readlink() == Path("src")
    assert (found / "src/dangling").readlink() == Path("../later")
    assert (found / "sources/same.cu").read_text() == "code"
    assert os.access(found / "tool.sh", os.X_OK)
    assert (found / "src/op.cu").stat().st_mtime == 1e9


def test_a_link_in_a_zip_is_one_again(tmp_path, sdist, store):
    path = sdist("ops-1.2.zip")
    with zipfile.ZipFile(path, "a") as archive:
        link = zipfile.ZipInfo("ops-1.2/sources")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "src")
    found = find_project(str(path), store).folder
    assert (found / "sources/op.cu").read_text() == "code"


def damaged(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


@pytest.mark.parametrize("name", ["ops-1.2.tar.gz", "ops-1.2.zip", "ops-1.2.tar.xz"])
@pytest.mark.parametrize("damage", [damaged, lambda path: path.write_text("<html>404")])
def test_a_damaged_sdist_is_told_and_not_kept(sdist, store, name, damage):
    path = sdist(name)
    damage(path)
    with pytest.raises(ConfigError, match="cannot be unpacked") as caught:
        find_project(str(path), store)
    assert str(path) in caught.value.what
    assert caught.value.fix
    assert list((store.root / "trees").iterdir()) == []


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"one/setup.py": "", "two/setup.py": ""}, "it holds 2 folders at its top"),
        ({"setup.py": ""}, "it holds 0 folders at its top"),
        ({"ops-1.2/README.md": ""}, "neither pyproject.toml nor setup.py"),
        ({"ops-1.2/pyproject.toml": '[build-system]\nbuild-backend = "hatchling.build"\n'},
         "'hatchling.build' is not supported"),
    ],
)  # fmt: skip
def test_an_archive_that_is_no_sdist_is_told(sdist, store, files, words):
    with pytest.raises(ConfigError, match=words) as caught:
        find_project(str(sdist("ops-1.2.zip", files)), store)
    assert caught.value.fix


def test_a_wheel_is_built_already(sdist, store):
    path = sdist("ops-1.2-py3-none-any.whl")
    with pytest.raises(ConfigError, match="is a wheel, which is built already") as caught:
        find_project(str(path), store)
    assert f"invoke check {path}" in caught.value.fix


def test_any_other_file_is_neither(tmp_path, store):
    (tmp_path / "ops.txt").touch()
    with pytest.raises(ConfigError, match="neither a folder nor an sdist") as caught:
        find_project(str(tmp_path / "ops.txt"), store)
    assert ".tar.gz" in caught.value.fix


@pytest.fixture
def index(monkeypatch, sdist):
    """Play `pip download`: gives `index.file`, or fails with `index.said` on stderr."""

    def run(argv, *, env, **_):
        words = [str(word) for word in argv]
        run.calls.append((words, env))
        if run.said:
            return proc.Finished(tuple(words), 1, "", run.said)
        into = Path(words[words.index("--dest") + 1])
        into.mkdir()
        path = sdist(run.file)
        path.rename(into / path.name)
        return proc.Finished(tuple(words), 0)

    run.calls, run.said, run.file = [], "", "ops-1.2.tar.gz"
    monkeypatch.setattr(proc, "run", run)
    return run


def test_a_requirement_is_downloaded_and_nothing_of_it_is_run(index, store):
    project = find_project("ops==1.2", store)
    assert project.title == "ops-1.2"
    ((words, env),) = index.calls
    assert words[:4] == [sys.executable, "-m", "pip", "download"]
    assert words[-1] == "ops==1.2"
    assert {"--no-deps", "--no-binary=:all:", "--no-build-isolation"} <= set(words)
    assert env["PYTHONPATH"] == str(SDIST_BACKEND)
    assert list((store.root / "tmp").iterdir()) == []


@pytest.fixture
def here(tmp_path, write, monkeypatch):
    """A current folder with two projects in it."""
    folder = write(tmp_path / "here", {"my_ops/setup.py": "", "csrc/setup.py": ""})
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("text", ["ops", "ops>=1", "ops==1.2"])
def test_a_name_is_a_requirement_with_and_without_a_version(index, store, here, text):
    assert find_project(text, store).title == "ops-1.2"
    ((words, _),) = index.calls
    assert words[-1] == text


@pytest.mark.parametrize(
    "text", ["./none", "none/deeper", "none.tar.gz", "none.whl", "no_such_folder/", "../x"]
)
def test_a_missing_path_is_no_requirement(index, store, here, text):
    with pytest.raises(ConfigError, match="does not exist") as caught:
        find_project(text, store)
    assert caught.value.fix
    assert index.calls == []


@pytest.mark.parametrize(
    ("text", "folder"), [("my_op", "my_ops"), ("my-ops", "my_ops"), ("cscr", "csrc")]
)
def test_a_folder_that_is_mistyped_does_not_become_somebody_elses_code(
    index, store, here, text, folder
):
    with pytest.raises(ConfigError, match=f"no such folder, but there is {folder}\n") as caught:
        find_project(text, store)
    assert f"{text}==VERSION" in caught.value.fix
    assert index.calls == []
    assert find_project(f"{text}==1.2", store).title == "ops-1.2"


def test_a_name_that_is_neither_folder_nor_project_is_told_as_both(index, store, here):
    index.said = NOT_FOUND.format("none").replace("ops==9", "none")
    with pytest.raises(DownloadError, match="the package index has no sdist of none") as caught:
        find_project("none", store)
    assert "there is no folder none here either" in caught.value.why
    assert "name their folder" in caught.value.fix


BROKEN = (
    "WARNING: Retrying (Retry(total=1)) after connection broken by 'NewConnectionError(': "
    "[Errno 111] Connection refused')': /simple/ops/\n" + NOT_FOUND.format("none")
)


@pytest.mark.parametrize("text", ["ops==9", "ops"])
def test_an_index_that_does_not_answer_is_not_one_that_has_no_such_project(
    index, store, here, text
):
    index.said = BROKEN
    with pytest.raises(DownloadError, match=f"the sdist of {text} cannot be downloaded") as caught:
        find_project(text, store)
    assert caught.value.why.startswith("the package index does not answer: [Errno 111] Connection")
    assert ("no folder ops here" in caught.value.why) == (text == "ops")


@pytest.mark.parametrize(
    "text",
    ["ops[fast]==1.2", "ops==1.2; python_version > '3'", "ops @ file:///tmp/ops-1.2.tar.gz"],
)
def test_a_requirement_that_says_more_than_a_version_is_refused(index, store, text):
    with pytest.raises(ConfigError, match="says more than a name and a version") as caught:
        find_project(text, store)
    assert caught.value.fix
    assert index.calls == []


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        (NOT_FOUND.format("1.0, 1.2"), "the package index has no sdist of ops==9", "name a vers"),
        (NOT_FOUND.format("none"), "the package index has no sdist of ops==9", "git clone"),
        (NO_SDIST, "the package index has no sdist of ops==9 that pip may take", "git clone"),
        ("ERROR: something else", "the sdist of ops==9 cannot be downloaded", "check the network"),
    ],
)  # fmt: skip
def test_what_the_index_does_not_give_is_a_failed_download(index, store, said, what, fix):
    index.said = said
    with pytest.raises(DownloadError) as caught:
        find_project("ops==9", store)
    assert caught.value.what == what
    assert fix in caught.value.fix
    assert ("1.0, 1.2" in (caught.value.why or "")) == ("1.0, 1.2" in said)


@pytest.mark.parametrize(
    "text", ["git+https://git.example/ops", "https://files.example/ops-1.2.tar.gz"]
)
def test_an_address_is_told_to_be_one(index, store, text):
    with pytest.raises(ConfigError, match="is an address") as caught:
        find_project(text, store)
    assert "git clone" in caught.value.fix
    assert index.calls == []


@pytest.fixture
def ask_backend(tmp_path, write):
    """Ask the backend for the metadata of an unpacked sdist, as pip does."""

    def ask_backend(name: str, pkg_info: str) -> proc.Finished:
        folder = write(tmp_path / "unpacked", {
            "PKG-INFO": pkg_info, "setup.py": "raise SystemExit('setup.py was run')",
        })  # fmt: skip
        (tmp_path / "out").mkdir()
        script = f"import {name} as backend, sys\n"
        script += "backend = getattr(backend, '__legacy__', backend)\n"
        script += "assert backend.get_requires_for_build_wheel() == []\n"
        script += "print(backend.prepare_metadata_for_build_wheel(sys.argv[1]))"
        env = {"PYTHONPATH": str(SDIST_BACKEND), "PATH": os.defpath}
        return proc.run([sys.executable, "-c", script, tmp_path / "out"], env=env, cwd=folder)

    return ask_backend


def test_an_sdists_metadata_is_read_and_its_setup_py_is_not_run(ask_backend, tmp_path):
    text = "Metadata-Version: 2.1\nName: My-Ops.x\nVersion: 1.2\n\nlong words\n"
    done = ask_backend("setuptools.build_meta", text)
    assert done.stdout == "My_Ops_x-1.2.dist-info\n", done.stderr
    assert (tmp_path / "out/My_Ops_x-1.2.dist-info/METADATA").read_text() == text


def test_a_backend_of_the_sdists_own_finds_the_names_that_it_passes_on_to(ask_backend, tmp_path):
    (tmp_path / "unpacked").mkdir()
    own = "from setuptools.build_meta import build_sdist, build_wheel, "
    own += "get_requires_for_build_wheel, prepare_metadata_for_build_wheel\n"
    (tmp_path / "unpacked/own.py").write_text(own)
    done = ask_backend("own", "Metadata-Version: 2.1\nName: ops\nVersion: 1.2\n")
    assert done.stdout == "ops-1.2.dist-info\n", done.stderr


def test_the_suffixes_of_sdists_are_all_unpacked():
    assert set(origin.SDIST_SUFFIXES) == {*MODES, ".zip"}
