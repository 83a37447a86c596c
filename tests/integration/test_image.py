"""The image stage with a real engine: base image, runtime image, emulated smoke run."""

import base64
import dataclasses
import hashlib
import io
import json
import os
import signal
import socket
import tarfile
import threading
import zipfile

import pytest
from engine import running_engine
from jetship import proc
from jetship.check.findings import Finding, Report
from jetship.engine import connect
from jetship.errors import CheckError, ConfigError, ImageError, ToolMissingError
from jetship.image.archive import plan
from jetship.image.base import base_image, require_base
from jetship.image.build import build_image
from jetship.image.smoke import smoke
from jetship.image.stubs import MissingSymbol, missing_symbols
from jetship.image.tree import Layer
from jetship.image.wheelfile import libraries
from jetship.pin import Pin, PinnedCode, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.store import Store, default_root, sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.prepare import prepare, prepare_base

# Of this process alone: several runs may share an engine.
REPOSITORY = f"jetship-test/tinyops-{os.getpid()}"
FUNCTION = "_ZN3c104cuda14ExchangeDeviceEa"
VARIABLE = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"

# As an extension does it: a function that is called, a variable that is only looked at, and a
# function of the CPU half, which the target's torch has.
SOURCE = f"""\
extern char {FUNCTION}(char);
extern void *{VARIABLE};
extern int _ZN2at15get_num_threadsEv(void);
int threads(void) {{ return _ZN2at15get_num_threadsEv(); }}
int allocator_is_null(void) {{ return {VARIABLE} == 0; }}
int exchange(void) {{ return {FUNCTION}(0); }}
"""

# torch is imported late: under emulation that takes twenty seconds.
MODULE = """\
import ctypes, glob, json, os, platform, sys, time

print("tinyops speaks on stderr", file=sys.stderr)
what = sys.argv[1] if len(sys.argv) > 1 else "ok"
if what == "sleep":
    time.sleep(600)
if what == "noise":
    sys.exit(print("no JSON here"))

import torch

folder = os.path.dirname(__file__)
library = ctypes.CDLL(glob.glob(os.path.join(folder, "_C*.so"))[0])
if what == "call":
    library.exchange()
print(json.dumps({
    "torch": torch.__version__, "machine": platform.machine(),
    "threads": library.threads(), "null": library.allocator_is_null(),
}))
"""


@pytest.fixture(scope="module")
def engine():
    with running_engine() as client:
        yield client


@pytest.fixture(scope="module")
def store():
    return Store(default_root())


@pytest.fixture(scope="module")
def target():
    return resolve(Catalog.load(), arch="6.2")[0]


@pytest.fixture(scope="module")
def toolchain(target, store):
    return prepare(target, store)


@pytest.fixture(scope="module")
def base(engine, target, store):
    folder = prepare_base(target.platform, store)
    return base_image(
        platform=target.platform,
        content=folder,
        store=store,
        client=engine,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, target, toolchain):
    folder = tmp_path_factory.mktemp("tinyops")
    library = folder / "_C.cpython-311-aarch64-linux-gnu.so"
    (folder / "tiny.c").write_text(SOURCE)
    compiler = toolchain.bin / "aarch64-linux-gnu-gcc"
    search = [f"-L{toolchain.torch}/lib", f"-L{toolchain.stubs}"]
    linked = ["-ltorch_cpu", "-lc10", "-ltorch_cuda", "-lc10_cuda"]
    words = ["-shared", "-fPIC", "-Wl,--no-as-needed", "-Wl,--unresolved-symbols=ignore-all"]
    done = proc.run([compiler, *words, "-o", library, folder / "tiny.c", *search, *linked])
    assert done.ok, done.stderr
    return pack(folder, library, target)


@pytest.fixture(scope="module")
def image(engine, target, base, wheel):
    made = build_image(
        wheel=wheel,
        target=target,
        base=base,
        repository=REPOSITORY,
        report=report(wheel, target),
        client=engine,
    )
    yield made
    engine.images.remove(made.tag, force=True)


def pack(folder, library, target):
    pin = Pin(
        tool=PinnedTool(version="0"),
        target=target.id,
        platform=target.platform.name,
        platform_kind=target.platform.kind,
        machine=target.platform.machine,
        torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True),
        cuda=PinnedCuda(version="11.8", code=(PinnedCode(arch="6.2", sass=True, ptx=False),)),
        python=PinnedPython(interpreter="cp311", abi="cp311"),
        glibc_floor="2.17",
    )
    files = {
        "tinyops/__init__.py": b"",
        "tinyops/__main__.py": MODULE.encode(),
        f"tinyops/{library.name}": library.read_bytes(),
        "tinyops-0.1.data/scripts/not-a-program": b"\x7fELF and nothing behind it",
        "tinyops-0.1.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinyops\n"
        b'Version: 0.1+local\nSummary: A "tiny" $op\nLicense-Expression: MIT\n'
        b"Project-URL: Source, https://example.net/tinyops\n",
        "tinyops-0.1.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n"
        b"Tag: cp311-cp311-linux_aarch64\n",
        "tinyops-0.1.dist-info/entry_points.txt": b"[console_scripts]\ntiny = tinyops:main\n",
        "tinyops-0.1.dist-info/jetship.json": pin.to_json(),
    }
    rows = [f"{name},{digest_of(data)},{len(data)}" for name, data in files.items()]
    record = "tinyops-0.1.dist-info/RECORD"
    files[record] = "\n".join([*rows, f"{record},,"]).encode()
    path = folder / "tinyops-0.1-cp311-cp311-linux_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, data)
    return path


def digest_of(data):
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"


def report(wheel, target, outcome="pass"):
    finding = Finding("test", outcome, wheel.name, "a finding of the test")
    return Report(wheel.name, sha256_of(wheel), target.id, (finding,))


def in_image(engine, image, path):
    """Read one file out of an image, without running anything."""
    container = engine.containers.create(image, ["-"], network_mode="none")
    try:
        chunks, _ = container.get_archive(path)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
            member = archive.next()
            return member, archive.extractfile(member).read()
    finally:
        container.remove()


def containers_of(engine, image):
    return engine.containers.list(all=True, filters={"ancestor": image.tag})


@pytest.fixture
def image_of_a_foreign_machine(engine, image):
    """An image in which not even the shell is for a machine that the kernel knows."""
    foreign = b"\x7fELF and nothing behind it"
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        member = tarfile.TarInfo("dash")
        member.size, member.mode = len(foreign), 0o755
        archive.addfile(member, io.BytesIO(foreign))
    container = engine.containers.create(image.tag, network_mode="none")
    try:
        container.put_archive("/usr/bin", stream.getvalue())
        made = container.commit(REPOSITORY, "foreign")
    finally:
        container.remove()
    yield made.tags[0]
    engine.images.remove(made.tags[0], force=True)


@pytest.fixture
def run_smoke(engine, image, wheel, toolchain, store):
    def run(*words, limit_seconds=300.0, tag=image.tag):
        return smoke(
            target=resolve(Catalog.load(), arch="6.2")[0],
            image=tag,
            wheel=wheel,
            command=words,
            client=engine,
            toolchain=toolchain,
            store=store,
            limit_seconds=limit_seconds,
        )

    return run


def test_base_image_is_arm64_and_made_once(engine, base, target, store, capsys):
    assert engine.images.get(base).attrs["Architecture"] == "arm64"
    folder = prepare_base(target.platform, store)
    again = base_image(
        platform=target.platform,
        content=folder,
        store=store,
        client=engine,
    )
    assert again == base
    assert f"the engine has {base} already" in capsys.readouterr().err


def test_image_carries_the_wheel_and_what_it_is(engine, image, wheel, target, base):
    assert image.tag == f"{REPOSITORY}:0.1-sm62-debian-12"
    assert image.architecture == "arm64"
    attributes = engine.images.get(image.tag).attrs
    labels = attributes["Config"]["Labels"]
    assert labels["jetship.target"] == target.id
    assert labels["jetship.wheel"] == wheel.name
    assert labels["jetship.wheel.sha256"] == sha256_of(wheel)
    assert Pin.from_json(labels["jetship.pin"].encode()).target == target.id
    assert labels["org.opencontainers.image.title"] == "tinyops"
    assert labels["org.opencontainers.image.description"] == 'A "tiny" $op'
    assert labels["org.opencontainers.image.base.name"] == base
    assert labels["org.opencontainers.image.licenses"] == "MIT"
    assert labels["org.opencontainers.image.source"] == "https://example.net/tinyops"
    packages = "/usr/local/lib/python3.11/dist-packages"
    member, data = in_image(engine, image.tag, f"{packages}/tinyops/__main__.py")
    assert (member.uid, member.mode & 0o777, data) == (0, 0o644, MODULE.encode())
    member, data = in_image(engine, image.tag, "/usr/local/bin/tiny")
    assert member.mode & 0o777 == 0o755
    assert data.startswith(b"#!/usr/bin/python3\n")
    assert in_image(engine, image.tag, f"{packages}/tinyops-0.1.dist-info/INSTALLER")


AS_WHOM = """\
import getpass, json, os, pathlib
cache = pathlib.Path.home() / ".nv/ComputeCache"
cache.mkdir(parents=True)
(cache / "index").write_text("x")
refused = []
for place in ("/usr/local/lib/python3.11/dist-packages/tinyops/x", "/x", "/etc/x", "/home/x"):
    try:
        open(place, "w")
    except PermissionError:
        refused.append(place)
print(json.dumps({"uid": os.getuid(), "groups": os.getgroups(), "name": getpass.getuser(),
                  "home": str(pathlib.Path.home()), "refused": len(refused)}))
"""


def run(engine, image, words, **settings):
    """What a container of the image prints, without the smoke run's help."""
    out = engine.containers.run(image.tag, words, remove=True, network_mode="none", **settings)
    return json.loads(out)


def test_the_program_is_not_root_and_has_a_home_for_its_caches(engine, image):
    found = run(engine, image, ["python3", "-c", AS_WHOM], group_add=["video"])
    assert found == {
        "uid": 10001,
        "groups": [44, 10001],
        "name": "jetship",
        "home": "/home/jetship",
        "refused": 4,
    }
    another = run(engine, image, ["python3", "-c", AS_WHOM], user="1000:1000")
    assert (another["uid"], another["refused"]) == (1000, 4)


def test_a_volume_of_docker_keeps_the_home_and_its_modes(engine, image):
    volume = engine.volumes.create()
    try:
        mounts = {volume.name: {"bind": "/home/jetship", "mode": "rw"}}
        assert run(engine, image, ["python3", "-c", AS_WHOM], volumes=mounts)["refused"] == 4
        ask = "import json, os; print(json.dumps(os.path.exists('/home/jetship/.nv')))"
        assert run(engine, image, ["python3", "-c", ask], volumes=mounts) is True
    finally:
        volume.remove()


def test_nvidias_runtime_is_asked_for_the_gpu(engine, image):
    environment = engine.images.get(image.tag).attrs["Config"]["Env"]
    assert "NVIDIA_VISIBLE_DEVICES=all" in environment


def test_same_wheel_gives_the_same_layers(engine, image, wheel, target, base):
    first = engine.images.get(image.tag).attrs["RootFS"]["Layers"]
    engine.images.remove(image.tag, force=True)
    again = build_image(
        wheel=wheel,
        target=target,
        base=base,
        repository=REPOSITORY,
        report=report(wheel, target),
        client=engine,
    )
    assert engine.images.get(again.tag).attrs["RootFS"]["Layers"] == first


def test_wheel_without_a_passing_report_is_refused(engine, wheel, target, base):
    given = {
        "wheel": wheel,
        "target": target,
        "base": base,
        "repository": "jetship-test/never",
        "client": engine,
    }
    with pytest.raises(CheckError, match=r"did not pass its check \(fail\)"):
        build_image(**given, report=report(wheel, target, "fail"))
    with pytest.raises(CheckError, match="about another wheel"):
        build_image(**given, report=dataclasses.replace(report(wheel, target), sha256="0" * 64))
    assert engine.images.list("jetship-test/never") == []


def test_missing_base_is_an_image_error(engine, wheel, target):
    with pytest.raises(ImageError, match=r"could not be built|engine failed") as caught:
        build_image(
            wheel=wheel,
            target=target,
            base="jetship-test/nowhere:1",
            repository=REPOSITORY,
            report=report(wheel, target),
            client=engine,
        )
    assert "jetship-test/nowhere" in str(caught.value)


def test_a_base_of_the_users_is_looked_into(engine, base, target, tmp_path, capsys):
    with pytest.raises(ConfigError, match="the engine has no image jetship-test/nowhere:1"):
        require_base(engine, "jetship-test/nowhere:1", target.platform)
    with pytest.raises(ConfigError, match="is for arm64, and the target is amd64"):
        require_base(engine, base, Catalog.load().platform("x86-64-cuda-12.4"))
    require_base(engine, base, target.platform)
    assert f"warning: no image {base} is known for debian-12" in capsys.readouterr().err
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("x")
    archive, tag = tmp_path / "image.tar", "jetship-test/hollow:1"
    with archive.open("wb") as out:
        plan([Layer(tmp_path / "root")], "aarch64", {}).write(out, tag)
    engine.images.load(archive.read_bytes())
    try:
        with pytest.raises(ConfigError, match=r"hollow:1 has no glibc and no Python 3\.11"):
            require_base(engine, tag, target.platform)
    finally:
        engine.images.remove(tag, force=True)


def test_base_of_another_machine_is_refused(engine, wheel, target, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root/file").write_text("x")
    archive = tmp_path / "image.tar"
    tag = "jetship-test/amd64:1"
    with archive.open("wb") as out:
        plan([Layer(tmp_path / "root")], "x86_64", {}).write(out, tag)
    engine.images.load(archive.read_bytes())
    try:
        with pytest.raises(ImageError):
            build_image(
                wheel=wheel,
                target=target,
                base=tag,
                repository="jetship-test/wrong",
                report=report(wheel, target),
                client=engine,
            )
    finally:
        for left in (tag, "jetship-test/wrong:0.1-sm62-debian-12"):
            if engine.images.list(left):
                engine.images.remove(left, force=True)


def test_missing_symbols_are_those_of_the_cuda_half(wheel, toolchain):
    assert missing_symbols(dict(libraries(wheel)), toolchain) == (
        MissingSymbol(FUNCTION, "function"),
        MissingSymbol(VARIABLE, "object"),
    )


def test_wheel_does_not_load_without_stand_ins(engine, image):
    container = engine.containers.create(
        image.tag, ["python3", "-m", "tinyops"], network_mode="none"
    )
    try:
        container.start()
        assert container.wait()["StatusCode"] == 1
        assert b"lib" in container.logs()
        assert b"_cuda.so: cannot open shared object file" in container.logs()
    finally:
        container.remove(force=True)


def test_smoke_returns_what_the_command_prints(engine, image, run_smoke):
    answer = run_smoke("python3", "-m", "tinyops")
    assert answer["machine"] == "aarch64"
    assert answer["torch"].startswith("2.7.1")
    assert answer["threads"] >= 1
    assert answer["null"] == 1
    assert containers_of(engine, image) == []
    files = engine.images.get(image.tag).attrs["Config"]["Env"]
    assert not any("emulation" in line for line in files), "the image itself knows no stand-ins"


def test_a_smoke_program_of_many_lines_is_told_on_one(run_smoke, capsys):
    program = "import json\n" + "# a note\n" * 40 + "print(json.dumps({'ok': True}))"
    assert run_smoke("python3", "-c", program) == {"ok": True}
    (line,) = [one for one in capsys.readouterr().err.splitlines() if "running" in one]
    assert "running python3 -c import json # a note" in line
    assert " ... in " in line


def test_calling_cuda_names_the_function(engine, image, run_smoke):
    with pytest.raises(ImageError, match="ended with exit status 134") as caught:
        run_smoke("python3", "-m", "tinyops", "call")
    message = f"jetship: {FUNCTION} was called, but this machine has no CUDA"
    assert message in str(caught.value)
    assert containers_of(engine, image) == []


def test_output_that_is_no_json_is_shown(run_smoke):
    with pytest.raises(ImageError, match="did not print a JSON object") as caught:
        run_smoke("python3", "-m", "tinyops", "noise")
    assert "no JSON here" in str(caught.value)
    assert "tinyops speaks on stderr" in str(caught.value)


def test_smoke_that_takes_too_long_is_stopped(engine, image, run_smoke):
    with pytest.raises(ImageError, match="did not end within 1 seconds"):
        run_smoke("python3", "-m", "tinyops", "sleep", limit_seconds=1.0)
    assert containers_of(engine, image) == []


# The interruption may fall between the opening of a file and the `with` that closes it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 1.0, 3.0])
def test_ctrl_c_leaves_no_container(engine, image, run_smoke, seconds):
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_smoke("python3", "-m", "tinyops", "sleep")
    assert containers_of(engine, image) == []


def test_engine_that_cannot_run_the_machine_says_how_to_mend_it(
    engine, image, run_smoke, image_of_a_foreign_machine
):
    with pytest.raises(ToolMissingError, match="cannot run aarch64 programs") as caught:
        run_smoke("/usr/local/bin/not-a-program", tag=image_of_a_foreign_machine)
    assert "qemu-user-static" in caught.value.fix
    assert containers_of(engine, image) == []


def test_missing_command_is_an_image_error(engine, image, run_smoke):
    with pytest.raises(ImageError, match="failed while running the smoke command") as caught:
        run_smoke("no-such-program")
    assert "executable file not found" in caught.value.why
    assert containers_of(engine, image) == []


def test_missing_socket_is_named_with_what_to_do(tmp_path, monkeypatch):
    where = f"unix://{tmp_path}/docker.sock"
    monkeypatch.setenv("DOCKER_HOST", where)
    with pytest.raises(ToolMissingError) as caught:
        connect()
    assert where in caught.value.what
    assert "not installed, or it is not running" in caught.value.why
    assert "apt-get install docker.io" in caught.value.fix


def test_socket_without_an_engine_is_told_from_a_missing_one(tmp_path, monkeypatch):
    path = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with pytest.raises(ToolMissingError) as caught:
        connect()
    assert "nothing listens there" in caught.value.why
