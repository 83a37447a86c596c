"""What users bring themselves: an image of the target, platforms and boards of their own."""

import io
import os
import shutil
import signal
import tarfile
from pathlib import Path

import pytest
from engine import running_engine
from jetship import proc
from jetship.check.libraries import TargetLibraries
from jetship.errors import ConfigError
from jetship.image.base import base_image
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.lock import read_lock
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.prepare import prepare, prepare_base
from jetship.toolchain.sources import make_part
from product import PROJECTS, ROOT, invoke, jetship, names_in, running, wait_until

# Of this process alone: several runs may share an engine.
NAME = f"jetship-test/l4t-pytorch-{os.getpid()}:r35"
LIBRARIES = "usr/lib/aarch64-linux-gnu"
TORCH = "usr/local/lib/python3.11/dist-packages/torch"
CUDA_HALF = ("libc10_cuda.so", "libtorch_cuda.so")
CUDA = "usr/local/cuda-11.8/targets/aarch64-linux/lib"
# The same platform as debian-12, whose facts are only known from another build.
PLATFORM = (ROOT / "toolchains/platforms/debian-12.yaml").read_text()


@pytest.fixture(scope="module")
def engine():
    with running_engine() as client:
        yield client


@pytest.fixture(scope="module")
def target():
    return resolve(Catalog.load(), arch="6.2")[0]


@pytest.fixture(scope="module")
def pinned(target):
    return prepare(target, Store(default_root()))


@pytest.fixture(scope="module")
def base(engine, target):
    """An image with torch and Python, and without headers."""
    store = Store(default_root())
    content = prepare_base(target.platform, store)
    return base_image(
        platform=target.platform,
        content=content,
        store=store,
        client=engine,
    )


@pytest.fixture(scope="module")
def l4t(engine, base, target, pinned, tmp_path_factory):
    """An image as l4t-pytorch is one: that base, headers, and CUDA behind absolute links."""
    additions = _additions(pinned, tmp_path_factory.mktemp("l4t"))
    container = engine.containers.create(base, ["true"])
    try:
        container.put_archive("/", additions)
        repository, _, tag = NAME.partition(":")
        container.commit(repository, tag)
    finally:
        container.remove(force=True)
    yield NAME
    shutil.rmtree(prepare(target, Store(default_root()), OwnParts(image=NAME)).sysroot.resolve())
    engine.images.remove(NAME)


def _additions(pinned, folder: Path) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("usr/include", LIBRARIES):
            archive.add(pinned.sysroot / name, name, filter=_of_root)
        runtime = (pinned.cuda_home / "lib64/libcudart.so").resolve()
        archive.add(runtime, f"{CUDA}/{runtime.name}", filter=_of_root)
        for name in CUDA_HALF:
            archive.add(_cuda_half(pinned, name, folder), f"{TORCH}/lib/{name}", filter=_of_root)
        for name, leads_to in (
            (f"{CUDA}/libcudart.so", runtime.name),
            ("usr/local/cuda-11.8/lib64", "targets/aarch64-linux/lib"),
            ("usr/local/cuda", "/etc/alternatives/cuda"),
            ("etc/alternatives/cuda", "/usr/local/cuda-11.8"),
            ("usr/local/lib/python3.11/outside", "/etc/passwd"),
        ):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, leads_to
            archive.addfile(link)
    return out.getvalue()


def _cuda_half(pinned, name: str, folder: Path) -> Path:
    """Make a library that exports the names of a CUDA build's."""
    listed = (ROOT / "toolchains/symbols/torch-2.5.1" / f"{name}.txt").read_text().splitlines()
    names = [line for line in listed if not line.startswith("#")]
    source = folder / f"{name}.s"
    source.write_text("".join(f".globl {symbol}\n{symbol}:\n.byte 0\n" for symbol in names))
    compiler = pinned.bin / "aarch64-linux-gnu-gcc"
    words = ["-shared", "-nostdlib", f"-Wl,-soname,{name}", "-o", folder / name, source]
    done = proc.run([compiler, *words])
    assert done.ok, done.stderr
    return folder / name


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


@pytest.fixture
def own_file(tmp_path) -> Path:
    """A platform whose evidence is derived, and a board that carries it."""
    text = PLATFORM.replace("name: debian-12", "name: my-board-1.0")
    text = text.replace("machine: aarch64", "machine: aarch64\nevidence: derived", 1)
    rows = "".join(f"    {line}\n" for line in text.splitlines())
    path = tmp_path / "my-boards.yaml"
    path.write_text(
        f"platforms:\n  -\n{rows}"
        "boards:\n"
        "  - {name: my-tx2, title: My TX2, arch: 6.2, kind: jetson, platforms: [my-board-1.0],\n"
        "     source: its data sheet}\n"
    )
    return path


def grades(row) -> set[str]:
    """Return the grades of all answers about symbols that were found."""
    found = [one for one in row["report"]["findings"] if one["rule"] == "symbols"]
    return {one["grade"] for one in found if one["outcome"] == "pass"}


def test_an_image_gives_sysroot_torch_and_cuda(l4t, target, pinned):
    toolchain = prepare(target, Store(default_root()), OwnParts(image=l4t))
    tree = toolchain.sysroot.resolve()
    assert toolchain.own == {"sysroot", "site-packages", "cuda-target"}
    assert toolchain.torch.resolve() == tree / TORCH
    assert toolchain.python_include == toolchain.sysroot / "usr/include/python3.11"
    assert (toolchain.python_include / "Python.h").is_file()
    assert toolchain.cuda_libraries[0].resolve() == tree / CUDA
    assert (tree / "usr/local/cuda/lib64/libcudart.so").exists()
    for name in ("libc10.so", "libtorch_cpu.so", "libtorch_python.so"):
        theirs, ours = (one.torch / "lib" / name for one in (toolchain, pinned))
        assert theirs.read_bytes() == ours.read_bytes()
    found, wanted = TargetLibraries.of(toolchain), TargetLibraries.of(pinned)
    assert wanted.libraries.keys() <= found.libraries.keys()
    assert found.interpreter == wanted.interpreter


def test_nothing_of_an_image_leads_out_of_its_folder(l4t, target):
    toolchain = prepare(target, Store(default_root()), OwnParts(image=l4t))
    tree = toolchain.sysroot.resolve()
    paths = [Path(folder, name) for folder, *rows in os.walk(tree) for row in rows for name in row]
    links = [path for path in paths if path.is_symlink()]
    assert len(links) > 20
    assert not [path for path in links if path.readlink().is_absolute()]
    assert all(path.resolve().is_relative_to(tree) for path in links)
    assert {path.name for path in tree.iterdir()} <= {"lib", "lib32", "lib64", "usr", "etc"}
    assert all(path.is_file() or path.is_dir() or path.is_symlink() for path in paths)


def test_the_image_is_never_run_and_leaves_no_container(engine, l4t, target, tmp_path):
    before = {container.id for container in engine.containers.list(all=True)}
    prepare(target, Store(default_root()), OwnParts(image=l4t))
    assert {container.id for container in engine.containers.list(all=True)} <= before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_export_that_is_interrupted_leaves_nothing(engine, base, tmp_path, dist, number):
    cache = tmp_path / "cache"
    words = ("build", "--arch", "6.2", "--image", base, "--dist", dist)
    with running(*words, JETSHIP_CACHE=str(cache)) as task:
        wait_until(lambda: list(cache.glob("trees/.image-*/usr/lib")), "the export")
        task.send(number)
        assert task.end().status == 130
    assert not [one for one in engine.containers.list(all=True) if one.image.tags == [base]]
    assert names_in(cache / "trees") == []
    assert names_in(dist) == []


@pytest.mark.long
def test_the_op_pack_is_built_and_proved_with_an_image(l4t, own_file, dist):
    done = invoke(
        "build", "--board", "my-tx2", "--targets-file", own_file, "--image", l4t,
        "--dist", dist, "--json",
    ).good()  # fmt: skip
    (row,) = done.json["wheels"]
    assert row["target"] == "sm62-my-board-1.0"
    assert row["outcome"] == "pass"
    assert grades(row) == {"exact"}
    assert not [one for one in row["report"]["findings"] if one["accepted"]]
    # Without the image the same wheel stands on another build, whose CUDA half is not there.
    again = invoke("check", row["wheel"], "--targets-file", own_file, "--json").good()
    assert [one for one in again.json["reports"][0]["findings"] if one["accepted"]]


def test_a_kernel_is_built_with_an_image_and_a_platform_of_ones_own(l4t, own_file, dist):
    words = ("--arch", "6.2", "--platform", "my-board-1.0", "--project", PROJECTS / "kernel")
    done = invoke(
        "build", *words, "--targets-file", own_file, "--image", l4t, "--dist", dist, "--json"
    ).good()
    (row,) = done.json["wheels"]
    assert "+myboard1.0.torch271" in row["wheel"]
    assert grades(row) == {"exact"}


def test_an_image_without_headers_is_for_checks(base, kernel_wheel):
    done = invoke("check", kernel_wheel, "--image", base).good()
    assert "has no C headers" in done.stderr


def test_an_image_that_the_engine_has_not(engine, base, dist):
    name, _, tag = base.partition(":")
    done = invoke("build", "--arch", "6.2", "--image", f"{name}:{tag[:-1]}", "--dist", dist)
    assert f"did you mean {base}" in done.one_error(2)
    assert names_in(dist) == []


def test_an_image_of_another_machine(engine, tmp_path, dist):
    name = f"jetship-test/amd64-{os.getpid()}"
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("empty"))
    out.seek(0)
    engine.api.import_image_from_data(out.getvalue(), repository=name, tag="1")
    try:
        done = invoke("build", "--arch", "6.2", "--image", f"{name}:1", "--dist", dist)
        assert "is for amd64, and the target is arm64" in done.one_error(2)
    finally:
        engine.images.remove(f"{name}:1")


def test_without_an_engine_no_image_is_had(dist, tmp_path):
    done = invoke(
        "build", "--arch", "6.2", "--image", "any", "--dist", dist,
        DOCKER_HOST=f"unix://{tmp_path}/none.sock",
    )  # fmt: skip
    assert "no Docker engine answers" in done.one_error(4)


def test_image_and_sysroot_exclude_each_other(dist, tmp_path):
    done = invoke("build", "--arch", "6.2", "--image", "any", "--sysroot", tmp_path, "--dist", dist)
    assert "both give the target's sysroot" in done.one_error(2)


def test_deploy_yaml_names_the_users_file(own_file, tmp_path):
    folder = tmp_path / "project"
    shutil.copytree(PROJECTS / "plain", folder / "plain")
    shutil.copy(own_file, folder / "boards.yaml")
    (folder / "deploy.yaml").write_text(
        "version: 1\n"
        "project: plain\n"
        "targets_file: boards.yaml\n"
        "targets: [{arch: 6.2, platform: my-board-1.0}]\n"
        "image: {repository: acme/plain, smoke: [python3, -c, pass]}\n"
        "fleet: {devices: [{name: one, address: me@one.example.net, board: my-tx2}]}\n"
    )
    rows = jetship("build", "--dry", "--json", cwd=folder).good().json["plan"]
    assert [row["target"] for row in rows] == ["sm62-my-board-1.0"]
    assert "my-board-1.0" in jetship("targets", cwd=folder).good().stdout
    assert "sm62-my-board-1.0" in jetship("matrix", cwd=folder).good().stdout


def test_a_users_file_that_does_not_exist():
    done = invoke("targets", "--targets-file", "no/such.yaml")
    assert "no/such.yaml does not exist" in done.stderr
    assert done.status == 2


@pytest.fixture(scope="module")
def torch_wheel(target):
    """The real wheel of the target's torch, as the cache has it."""
    part = target.platform.toolchain.torch
    files = read_lock(part.name, part.folder).sources["wheels/aarch64/cp311"]
    (locked,) = [item for item in files if item.name == "torch"]
    return Store(default_root()).blob(locked.sha256, locked.file)


@pytest.fixture
def owner(tmp_path):
    """A project whose deploy.yaml is to name own parts for debian-12."""
    folder = tmp_path / "owner"
    shutil.copytree(PROJECTS / "kernel", folder / "kernel")

    def write(**paths: Path) -> Path:
        rows = "".join(f"    {name}: {path}\n" for name, path in paths.items())
        (folder / "deploy.yaml").write_text(
            "version: 1\nproject: kernel\ntargets: [{arch: 6.2}]\n"
            "image: {repository: acme/ops, smoke: [python3, -c, pass]}\n"
            f"own_parts:\n  debian-12:\n{rows}"
        )
        return folder

    return write


def test_parts_that_deploy_yaml_names_are_built_and_checked_with(pinned, owner, torch_wheel):
    """Every real part, in the shape in which a user has it, named once for all tasks."""
    folder = owner(
        cuda_home=pinned.cuda_home.resolve(),
        sysroot=pinned.sysroot.resolve(),
        torch_wheel=torch_wheel,
        python_dev=pinned.sysroot.resolve() / "usr",
    )
    done = jetship("build", "--json", cwd=folder).good()
    (row,) = done.json["wheels"]
    assert row["outcome"] == "pass"
    (plan,) = jetship("build", "--dry", "--json", cwd=folder).good().json["plan"]
    assert set(plan["own_parts"]) == {"cuda_home", "sysroot", "torch_wheel", "python_dev"}
    found = jetship("check", *folder.glob("dist/*.whl"), "--json", cwd=folder).good().json
    assert [report["outcome"] for report in found["reports"]] == ["pass"]
    (row,) = jetship("toolchain", "--json", cwd=folder).good().json["toolchains"]
    assert (Path(row["toolchain"]) / "cuda").resolve() == pinned.cuda_home.resolve()
    assert (Path(row["toolchain"]) / "sysroot").resolve() == pinned.sysroot.resolve()


def test_debians_python_headers_lie_apart_from_the_sysroot(target, pinned, tmp_path):
    """libpythonX.Y-dev unpacked into a folder of its own, and a sysroot without Python."""
    triplet, python = "aarch64-linux-gnu", "python3.11"
    for name in (python, f"{triplet}/{python}"):
        shutil.copytree(pinned.sysroot / "usr/include" / name, tmp_path / "include" / name)
    store = Store(default_root())
    plain = make_part(Catalog.load().part("sysroot-bullseye"), store).path
    assert not (plain / "usr/include" / python).exists()
    source = tmp_path / "x.cpp"
    source.write_text("#include <Python.h>\nint x = PY_MINOR_VERSION;\n")
    toolchain = prepare(target, store, OwnParts(sysroot=plain, python_dev=tmp_path))
    compiler = toolchain.bin / f"{triplet}-g++"
    words = ["-fsyntax-only", "-I", toolchain.python_include, source]
    done = proc.run([compiler, *words])
    assert done.ok, done.stderr
    shutil.rmtree(tmp_path / "include" / triplet)
    with pytest.raises(ConfigError, match="is not for aarch64"):
        prepare(target, store, OwnParts(sysroot=plain, python_dev=tmp_path))


def test_the_real_torch_of_another_target_is_told(dist, torch_wheel):
    done = invoke(
        "build", "--arch", "7.2", "--jetpack", "5.1", "--torch-wheel", torch_wheel, "--dist", dist
    )
    error = done.one_error(2)
    assert f"--torch-wheel {torch_wheel} is for cp311-cp311-manylinux" in error
    assert "jetpack-5.1 takes cp38-cp38-*_aarch64" in error
    assert names_in(dist) == []


def test_a_tree_that_a_build_uses_is_not_deleted_under_it(target, cache, dist):
    """The trees of a running build stay, whatever their age; afterwards they may go."""
    variables = {"JETSHIP_CACHE": str(cache), "STALLED_HEADER_IS": "pipe"}
    (cache / "trees").unlink()
    (cache / "trees").mkdir()
    shared = Store(default_root())
    for part in target.platform.toolchain.all:
        made = make_part(part, shared).path
        (cache / "trees" / made.name).symlink_to(made)
    words = ("build", "--arch", "6.2", "--project", PROJECTS / "stalled", "--dist", dist)
    with running(*words, **variables) as task:
        wait_until(lambda: "building" in task.said(), "the build")
        rows = invoke("cache", "--json", **variables).good().json["trees"]
        assert {row["kept"] for row in rows} == {"a running process uses it"}
        invoke("cache", "--prune", "--older-than", "0h", **variables).good()
        used = {row["name"] for row in rows}
        assert used <= set(names_in(cache / "trees"))
        task.send(signal.SIGTERM)
        task.end()
    done = invoke("cache", "--older-than", "0h", "--json", **variables).good()
    assert used <= set(done.json["unused"])
