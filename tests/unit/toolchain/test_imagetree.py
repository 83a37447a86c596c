"""An image's file system as a sysroot: what is kept, where links lead, what is refused."""

import io
import tarfile

import docker.errors
import pytest
from jetship.errors import ConfigError, ImageError
from jetship.toolchain import imagetree
from jetship.toolchain.imagetree import ImageTree, export_image
from jetship.toolchain.layout import CUDA_CMAKE_MACROS
from jetship.toolchain.own import own_image
from jetship.toolchain.rootfs import inner_link, unpack

LIBRARIES = "usr/lib/aarch64-linux-gnu"
PACKAGES = "usr/local/lib/python3.11/dist-packages"
CUDA = "usr/local/cuda-11.8/targets/aarch64-linux/lib"
FILES = {
    f"{LIBRARIES}/libc.so.6": "libc",
    "usr/include/stdio.h": "",
    "usr/include/python3.11/Python.h": "",
    f"{PACKAGES}/torch/version.py": "__version__ = '2.7.1'\n",
    f"{CUDA}/libcudart.so.11.0": "cudart",
}


def archive(files=FILES, *, links=(), hard=(), others=()) -> bytes:
    """Make an archive as the engine exports it, with these files and links."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            member.mode = 0o755 if "bin/" in name else 0o600
            made.addfile(member, io.BytesIO(text.encode()))
        rows = [(tarfile.SYMTYPE, links), (tarfile.LNKTYPE, hard)]
        for kind, pairs in rows:
            for name, leads_to in pairs:
                member = tarfile.TarInfo(name)
                member.type, member.linkname = kind, leads_to
                made.addfile(member)
        for name, kind in others:
            member = tarfile.TarInfo(name)
            member.type = kind
            made.addfile(member)
    return out.getvalue()


def in_chunks(data: bytes, size: int = 700):
    return (data[start : start + size] for start in range(0, len(data), size))


def names(root) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_only_what_a_toolchain_needs_is_kept(tmp_path):
    unneeded = ("etc/passwd", "home/me/.ssh/id", "opt/x", "usr/share/doc/x", "usr/bin/bash",
                "root/.netrc", "usr/local/bin/x", "usr/local/cuda-11.8/bin/nvcc", "var/lib/x",
                "usr/local/lib/libother.so")  # fmt: skip
    more = ("usr/bin/python3.11", "lib64/ld.so", "usr/lib/python3/dist-packages/x.py")
    unpack(in_chunks(archive({**FILES, **dict.fromkeys((*unneeded, *more), "x")})), tmp_path)
    assert names(tmp_path) == {*FILES, *more}
    assert (tmp_path / f"{LIBRARIES}/libc.so.6").read_text() == "libc"


def test_modes_are_plain(tmp_path):
    unpack(in_chunks(archive({"usr/bin/python3.11": "x", "usr/include/x.h": ""})), tmp_path)
    assert (tmp_path / "usr/bin/python3.11").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "usr/include/x.h").stat().st_mode & 0o777 == 0o644


def test_devices_and_pipes_are_left_out(tmp_path):
    others = [("usr/lib/null", tarfile.CHRTYPE), ("usr/lib/pipe", tarfile.FIFOTYPE)]
    unpack(in_chunks(archive(others=others)), tmp_path)
    assert names(tmp_path) == set(FILES)


@pytest.mark.parametrize(
    ("name", "target", "inner"),
    [
        ("usr/lib/x.so", "x.so.1", "x.so.1"),
        ("usr/lib/x.so", "../lib64/x.so.1", "../lib64/x.so.1"),
        ("usr/lib/x.so", "/lib/x.so.1", "../../lib/x.so.1"),
        ("lib", "/usr/lib", "usr/lib"),
        ("lib", "../../usr/lib", "usr/lib"),
        ("usr/lib/x", "../../../../etc/passwd", "../../etc/passwd"),
        ("usr/lib/x", "/../../etc/passwd", "../../etc/passwd"),
        ("usr/lib/x", "/", "../.."),
    ],
)
def test_links_lead_to_where_they_do_in_the_image(name, target, inner):
    assert inner_link(name, target) == inner


def test_cuda_is_found_behind_alternatives(tmp_path):
    links = [
        ("usr/local/cuda", "/etc/alternatives/cuda"),
        ("etc/alternatives/cuda", "/usr/local/cuda-11.8"),
        ("usr/local/cuda-11.8/lib64", "targets/aarch64-linux/lib"),
        ("etc/alternatives-x", "/usr"),
    ]
    unpack(in_chunks(archive(links=links)), tmp_path)
    assert (tmp_path / "usr/local/cuda/lib64/libcudart.so.11.0").read_text() == "cudart"
    assert not (tmp_path / "etc/alternatives-x").is_symlink()


def test_hard_links_are_kept_within_what_is_kept(tmp_path):
    hard = [
        (f"{LIBRARIES}/again", f"{LIBRARIES}/libc.so.6"),
        (f"{LIBRARIES}/shell", "usr/bin/bash"),
        (f"{LIBRARIES}/out", "../../../etc/passwd"),
    ]
    unpack(in_chunks(archive({**FILES, "usr/bin/bash": "x"}, hard=hard)), tmp_path)
    assert (tmp_path / f"{LIBRARIES}/again").read_text() == "libc"
    assert names(tmp_path) == {*FILES, f"{LIBRARIES}/again"}


def test_an_archive_cannot_write_outside(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    root.mkdir()
    outside.mkdir()
    for name in ("../outside/x", "usr/lib/../../../outside/x", "/usr/../../outside/x"):
        unpack(in_chunks(archive({name: "x"})), root)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as made:
        link = tarfile.TarInfo("usr/lib")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc"
        made.addfile(link)
        made.addfile(tarfile.TarInfo("usr/lib/x"))
    with pytest.raises(tarfile.ReadError, match="is a link and a folder"):
        unpack(in_chunks(out.getvalue()), root)
    assert names(outside) == set()


class FakeContainer:
    def __init__(self, data, size):
        self.data, self.size, self.removed = data, size, False

    def export(self, chunk_size):  # noqa: ARG002
        return in_chunks(self.data, self.size)

    def remove(self, *, force, v):
        assert force
        assert v
        self.removed = True


class FakeEngine:
    """Stands for the engine's client: one image, and what containers of it export."""

    def __init__(self, data, *, architecture="arm64", tags=("l4t:r35",)):
        self.images = self.containers = self
        self.data, self.tags, self.id = data, list(tags), "sha256:1"
        self.attrs = {"Architecture": architecture, "Size": 10}
        self.made = []
        self.closed = False

    def get(self, name):
        if name not in self.tags:
            raise docker.errors.ImageNotFound("no such image")
        return self

    def list(self):
        return [self]

    def create(self, image, command, *, network_disabled):
        assert image is self
        assert command
        assert network_disabled
        self.made.append(FakeContainer(self.data, 700))
        return self.made[-1]

    def close(self):
        self.closed = True


@pytest.fixture
def engine(monkeypatch):
    def install(data=None, **facts) -> FakeEngine:
        fake = FakeEngine(archive() if data is None else data, **facts)
        monkeypatch.setattr(imagetree, "connect", lambda: fake)
        return fake

    return install


def test_an_image_is_exported_once(engine, store, debian_12):
    fake = engine()
    tree = export_image("l4t:r35", debian_12, store)
    assert export_image("l4t:r35", debian_12, store) == tree
    assert [container.removed for container in fake.made] == [True]
    assert fake.closed
    assert tree.root.is_relative_to(store.root)
    assert names(tree.root) == {*FILES, f"{PACKAGES}/{CUDA_CMAKE_MACROS}"}
    fake.id = "sha256:2"
    assert export_image("l4t:r35", debian_12, store).root != tree.root


def test_what_an_image_gives_is_the_targets_own(engine, store, debian_12, make_libc):
    engine()
    tree = export_image("l4t:r35", debian_12, store)
    (tree.root / LIBRARIES / "libc.so.6").write_bytes(make_libc())
    given = own_image(tree, debian_12, with_torch=True)
    assert {name: one.path for name, one in given.items()} == {
        "sysroot": tree.root,
        "site-packages": tree.root / PACKAGES,
        "cuda-target": tree.root / CUDA,
    }
    assert all(one.exact for one in given.values())
    assert len({one.identity for one in given.values()}) == 3
    assert "site-packages" not in own_image(tree, debian_12, with_torch=False)


def test_an_image_without_headers_serves_for_checks(engine, store, debian_12, capsys):
    engine(archive({name: text for name, text in FILES.items() if not name.endswith(".h")}))
    tree = export_image("l4t:r35", debian_12, store)
    assert not tree.has_headers
    assert "has no C headers" in capsys.readouterr().err


def test_an_image_that_is_not_there_gets_the_nearest(engine, store, debian_12):
    engine(tags=["nvcr/l4t-pytorch:r35.2.1", "debian:12"])
    with pytest.raises(ConfigError, match="no image l4t-pytorch:r35") as caught:
        export_image("l4t-pytorch:r35", debian_12, store)
    assert "did you mean nvcr/l4t-pytorch:r35.2.1?" in caught.value.fix
    assert "docker pull l4t-pytorch:r35" in caught.value.fix


def test_an_image_of_another_machine_is_refused(engine, store, debian_12):
    fake = engine(architecture="amd64")
    with pytest.raises(ConfigError, match="is for amd64, and the target is arm64") as caught:
        export_image("l4t:r35", debian_12, store)
    assert "--platform linux/arm64" in caught.value.fix
    assert fake.made == []


@pytest.mark.parametrize("kept", [0, 900, 2048, 3600])
def test_an_archive_that_ends_early_leaves_nothing(engine, store, debian_12, kept):
    fake = engine(archive()[:kept] if kept else b"")
    with pytest.raises(ImageError, match="archive of l4t:r35 is damaged"):
        export_image("l4t:r35", debian_12, store)
    assert [container.removed for container in fake.made] == [True]
    assert not list(store.root.glob("trees/image-*"))


def test_an_engine_that_fails_is_told(engine, store, debian_12, monkeypatch):
    fake = engine()

    def create(*words, **options):
        raise docker.errors.APIError("server error", explanation="no space")

    monkeypatch.setattr(fake, "create", create)
    with pytest.raises(ImageError, match="failed while exporting l4t:r35") as caught:
        export_image("l4t:r35", debian_12, store)
    assert caught.value.why == "no space"


def test_an_image_without_a_c_library_is_no_sysroot(tmp_path, debian_12):
    tree = ImageTree("l4t:r35", "sha256:1", tmp_path)
    with pytest.raises(ConfigError, match=r"the image l4t:r35 has no .*libc\.so\.6"):
        own_image(tree, debian_12, with_torch=False)


@pytest.mark.parametrize(
    "base", ["usr/local/lib/python3.11", "usr/lib/python3.11", "usr/lib/python3"]
)
@pytest.mark.parametrize("packages", ["dist-packages", "site-packages"])
def test_torch_is_found_where_pythons_look(tmp_path, debian_12, base, packages):
    folder = tmp_path / base / packages
    (folder / "torch").mkdir(parents=True)
    (folder / "torch/version.py").touch()
    assert ImageTree("l4t", "1", tmp_path).torch(debian_12) == folder


def test_torch_of_another_python_is_named(tmp_path, debian_12):
    folder = tmp_path / "usr/local/lib/python3.8/dist-packages/torch"
    folder.mkdir(parents=True)
    (folder / "version.py").touch()
    with pytest.raises(ConfigError, match=r"has no torch for Python 3\.11") as caught:
        ImageTree("l4t", "1", tmp_path).torch(debian_12)
    assert "usr/local/lib/python3.8/dist-packages/torch" in caught.value.why
    assert "--torch-wheel" in caught.value.fix


def test_cuda_is_the_platforms_release_where_there_are_two(tmp_path, debian_12):
    tree = ImageTree("l4t", "1", tmp_path)
    assert tree.cuda(debian_12) is None
    for release in ("10.2", "11.8", "12.2"):
        (tmp_path / f"usr/local/cuda-{release}/targets/aarch64-linux/lib").mkdir(parents=True)
    assert tree.cuda(debian_12) == tmp_path / CUDA
