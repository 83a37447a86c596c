"""Small arm64 images with all that a rollout looks at: layers, labels, a service, its health.

    image = make_image(folder, "1.0")                      # healthy
    image = make_image(folder, "1.1", behaviour="crashes")

The lower layer is Debian's static busybox with some megabytes that every version shares; the upper
one is an installed wheel, as `invoke image` puts it there, and another one in each version. In an
image are `/bin/service` (its command), `/bin/healthy` (ends with 0 when the service is) and
`/bin/selftest` (prints JSON); what they do is in the wheel. Where the engine's machine is no arm64,
all of that runs under qemu.
"""

import base64
import dataclasses
import hashlib
import json
import random
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship import proc
from jetship.image.archive import Archive, plan
from jetship.image.base import packages_folder
from jetship.image.tree import Layer
from jetship.image.wheelfile import install, read_wheel
from jetship.pin import Pin, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.model import Platform, Target
from jetship.targets.parts import DebianSource
from jetship.targets.resolve import resolve
from jetship.toolchain.debian import AptRoot

REPOSITORY = "jetship-test/fleet"
WHEEL_KB = 500
SERVICE, HEALTHY, SELFTEST = ("/bin/service",), ("/bin/healthy",), ("/bin/selftest",)
Behaviour = Literal[
    "healthy", "crashes", "dies", "never-healthy", "health-hangs", "fails-selftest", "slow"
]
_PROGRAMS = DebianSource(suite="bullseye", architecture="arm64", alone=("busybox-static", "libc6"))
_APPLETS = ("sh", "cat", "sleep", "echo", "test", "ls", "touch", "sha256sum", "date", "uname")

# PID 1 gets no signal that it does not ask for; the shell sees one when what it waits for ends.
_SERVES = """\
trap 'exit 0' TERM INT
echo "fleetops {version} serves"
{wait}touch /dev/shm/ready
while :; do sleep 1000 & wait $!; done
"""
_SERVICES = {
    "crashes": 'echo "fleetops {version}: no such camera" >&2\nexit 3\n',
    "dies": 'touch /dev/shm/ready\necho "fleetops {version} serves"\nsleep {seconds}\n'
    'echo "fleetops {version}: out of film" >&2\nexit 4\n',
}
_HEALTH = {
    "never-healthy": 'echo "no frames" >&2\nexit 1\n',
    "health-hangs": "exec sleep 1000\n",
}


@dataclass(frozen=True)
class Image:
    """An image that was made: its archive is what `docker load` reads."""

    tag: str
    id: str
    version: str
    archive: Path
    diff_ids: tuple[str, ...]
    layer_bytes: tuple[int, ...]
    """The sizes of the layers' tars, from the bottom up; most of them cannot be compressed."""


def make_image(
    folder: Path,
    version: str,
    *,
    behaviour: Behaviour = "healthy",
    seconds: int = 3,
    wheel_kb: int = WHEEL_KB,
    base_kb: int = 2000,
    repository: str = REPOSITORY,
    target: Target | None = None,
) -> Image:
    """Make an image in `folder`.

    Args:
        folder: for its archive; layers that images share are made there once.
        version: what sets it apart from others.
        behaviour: "crashes" at once; "dies" after `seconds`, healthy until then; is
            "never-healthy"; its "health-hangs"; "fails-selftest"; is "slow": healthy after
            `seconds`.
        seconds: see `behaviour`.
        wheel_kb: the size of the upper layer.
        base_kb: the size of the lower one, beside busybox's two megabytes.
        repository: its name without tag.
        target: what it says that it was built for (default: JetPack 6.2 on Orin).
    """
    target = target or resolve(Catalog.load(), arch="8.7", platform="jetpack-6.2")[0]
    packages = packages_folder(target.platform)
    wheel = _wheel(folder, version, target, _scripts(version, behaviour, seconds), wheel_kb)
    upper = folder / f"wheel-{version}"
    install(wheel, upper, packages)
    layers = [Layer(_base(folder, base_kb, target.platform)), Layer(upper, plain_modes=True)]
    archive = _with_command(plan(layers, target.platform.machine, _labels(target, wheel)))
    tag, path = f"{repository}:{version}", folder / f"image-{version}.tar"
    with path.open("wb") as out:
        archive.write(out, tag)
    shutil.rmtree(upper)
    diff_ids = tuple(f"sha256:{digest}" for digest in archive.digests)
    return Image(tag, f"sha256:{archive.digest}", version, path, diff_ids, archive.sizes)


def _base(folder: Path, kilobytes: int, platform: Platform) -> Path:
    """Make the tree of the lower layer, which knows where the wheel will be."""
    packages = packages_folder(platform)
    tree = folder / f"base-{kilobytes}-{platform.name}"
    if not tree.exists():
        fresh = tree.with_suffix(".part")
        (fresh / "bin").mkdir(parents=True)
        shutil.copy(_programs() / "bin/busybox", fresh / "bin/busybox")
        _lay_out_libraries(fresh, platform)
        for name in _APPLETS:
            (fresh / "bin" / name).symlink_to("busybox")
        for (path,) in (SERVICE, HEALTHY, SELFTEST):
            script = fresh / path.lstrip("/")
            script.write_text(f"#!/bin/sh\n. /{packages}/fleetops/{script.name}\n")
            script.chmod(0o755)
        for name in ("tmp", "etc"):
            (fresh / name).mkdir()
        (fresh / "etc/passwd").write_text(
            "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
        )
        (fresh / "etc/group").write_text("root:x:0:\nvideo:x:44:\nnobody:x:65534:\n")
        (fresh / "base.bin").write_bytes(_noise("base", kilobytes))
        fresh.rename(tree)
    return tree


def _lay_out_libraries(root: Path, platform: Platform) -> None:
    """Put there what the check of an image reads: the C library, and of torch its version.

    That is enough for a wheel without native code, of which no rule asks for torch's libraries.
    """
    triplet = f"{platform.machine}-linux-gnu"
    libraries = root / "usr/lib" / triplet
    libraries.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"):
        shutil.copy(_programs() / "lib" / triplet / name, libraries / name)
    torch = root / packages_folder(platform) / "torch"
    torch.mkdir(parents=True)
    (torch / "version.py").write_text(
        f"__version__ = {platform.torch.version!r}\ncuda = {platform.torch.cuda!r}\n"
    )


def _programs() -> Path:
    """Return the tree of Debian's static busybox and C library for arm64, which the cache keeps."""
    store = Store(default_root())

    def make(root: Path) -> None:
        apt = AptRoot(store, _PROGRAMS)
        with store.scratch() as scratch:
            apt.update()
            apt.download(_PROGRAMS.alone, scratch)
            for package in sorted(scratch.glob("*.deb")):
                assert proc.run(["dpkg-deb", "--extract", package, root]).ok

    words = _PROGRAMS.model_dump_json().encode()
    return store.tree("test-programs", hashlib.sha256(words).hexdigest(), make)


def _scripts(version: str, behaviour: Behaviour, seconds: int) -> dict[str, str]:
    """Return what is in the wheel for the programs of the image."""
    wait = f"sleep {seconds} & wait $!\n" if behaviour == "slow" else ""
    service = _SERVICES.get(behaviour, _SERVES)
    well = behaviour != "fails-selftest"
    answer = json.dumps({"ok": well, "version": version})
    return {
        "service": service.format(version=version, seconds=seconds, wait=wait),
        "healthy": _HEALTH.get(behaviour, "exec test -e /dev/shm/ready\n"),
        "selftest": f"echo '{answer}'\nexit {0 if well else 1}\n",
    }


def _wheel(
    folder: Path, version: str, target: Target, scripts: dict[str, str], kilobytes: int
) -> Path:
    """Write a wheel without native code, with a pin, for a target."""
    info = f"fleetops-{version}.dist-info"
    files = {
        "fleetops/__init__.py": b"",
        "fleetops/weights.bin": _noise(version, kilobytes),
        **{f"fleetops/{name}": text.encode() for name, text in scripts.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: fleetops\nVersion: {version}\n"
        f"Summary: What the tests of rollouts roll out\n"
        f"Requires-Dist: {target.platform.torch.pinned}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/jetship.json": _pin(target).to_json(),
    }
    rows = [f"{name},sha256={_digest(data)},{len(data)}\n" for name, data in files.items()]
    files[f"{info}/RECORD"] = f"{''.join(rows)}{info}/RECORD,,\n".encode()
    path = folder / f"fleetops-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def _labels(target: Target, wheel: Path) -> dict[str, str]:
    facts = read_wheel(wheel)
    return {
        "org.opencontainers.image.title": facts.name,
        "org.opencontainers.image.version": facts.version,
        "jetship.target": target.id,
        "jetship.pin": facts.pin_json,
        "jetship.wheel": facts.file,
        "jetship.wheel.sha256": facts.sha256,
    }


def _pin(target: Target) -> Pin:
    platform = target.platform
    return Pin(
        tool=PinnedTool(version="0"),
        target=target.id,
        platform=platform.name,
        platform_kind=platform.kind,
        machine=platform.machine,
        torch=PinnedTorch(
            version=platform.torch.version,
            cuda=platform.torch.cuda,
            cxx11_abi=platform.torch.cxx11_abi,
        ),
        cuda=PinnedCuda(version=platform.cuda.version, code=()),
        python=PinnedPython(interpreter="py3", abi="none"),
        glibc_floor=None,
    )


def _with_command(archive: Archive) -> Archive:
    config = json.loads(archive.config)
    config["config"]["Cmd"] = list(SERVICE)
    data = json.dumps(config, sort_keys=True, separators=(",", ":")).encode()
    return dataclasses.replace(archive, config=data)


def _noise(seed: str, kilobytes: int) -> bytes:
    """Return bytes that are the same for the same seed and do not shrink in compression."""
    return random.Random(seed).randbytes(kilobytes << 10)  # noqa: S311 - no secret
