"""Small arm64 images with all that a rollout looks at: layers, labels, a service, its health.

    image = make_image(folder, "1.0")                      # healthy
    image = make_image(folder, "1.1", behaviour="crashes")

The lower layer is Debian's static busybox with some megabytes that every version shares; the upper
one stands for the wheel, and is another one in each version. In an image are `/bin/service` (its
command), `/bin/healthy` (ends with 0 when the service is) and `/bin/selftest` (prints JSON).
Where the engine's machine is no arm64, all of that runs under qemu.
"""

import dataclasses
import hashlib
import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship import proc
from jetship.image.archive import Archive, plan
from jetship.image.tree import Layer
from jetship.pin import Pin, PinnedCode, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target
from jetship.targets.parts import DebianSource
from jetship.targets.resolve import resolve
from jetship.toolchain.debian import AptRoot

REPOSITORY = "jetship-test/fleet"
SERVICE, HEALTHY, SELFTEST = ("/bin/service",), ("/bin/healthy",), ("/bin/selftest",)
Behaviour = Literal[
    "healthy", "crashes", "dies", "never-healthy", "health-hangs", "fails-selftest", "slow"
]
_BUSYBOX = DebianSource(suite="bookworm", architecture="arm64", alone=("busybox-static",))
_APPLETS = ("sh", "cat", "sleep", "echo", "test", "ls", "touch", "sha256sum", "date", "uname")
_PACKAGE = "usr/local/lib/python3.11/dist-packages/fleetops"
_SHELL = "#!/bin/sh\n"

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
    wheel_kb: int = 500,
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
    lower = _base(folder, base_kb)
    upper = folder / f"wheel-{version}"
    _write_service(upper, version, behaviour, seconds)
    package = upper / _PACKAGE
    package.mkdir(parents=True)
    (package / "VERSION").write_text(version)
    (package / "kernels.bin").write_bytes(_noise(version, wheel_kb))
    planned = plan([Layer(lower), Layer(upper)], target.platform.machine, _labels(target, version))
    archive = _with_command(planned)
    tag, path = f"{repository}:{version}", folder / f"image-{version}.tar"
    with path.open("wb") as out:
        archive.write(out, tag)
    shutil.rmtree(upper)
    diff_ids = tuple(f"sha256:{digest}" for digest in archive.digests)
    return Image(tag, f"sha256:{archive.digest}", version, path, diff_ids, archive.sizes)


def _base(folder: Path, kilobytes: int) -> Path:
    tree = folder / f"base-{kilobytes}"
    if not tree.exists():
        fresh = folder / f"base-{kilobytes}.part"
        (fresh / "bin").mkdir(parents=True)
        shutil.copy(_busybox(), fresh / "bin/busybox")
        for name in _APPLETS:
            (fresh / "bin" / name).symlink_to("busybox")
        for name in ("tmp", "etc"):
            (fresh / name).mkdir()
        (fresh / "etc/passwd").write_text(
            "root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
        )
        (fresh / "etc/group").write_text("root:x:0:\nvideo:x:44:\nnobody:x:65534:\n")
        (fresh / "base.bin").write_bytes(_noise("base", kilobytes))
        fresh.rename(tree)
    return tree


def _busybox() -> Path:
    """Return Debian's static arm64 busybox, which the cache keeps."""
    store = Store(default_root())
    kept = store.root / "tests/busybox-arm64"
    with store.locked("test-busybox"):
        if not kept.exists():
            apt = AptRoot(store, _BUSYBOX)
            with store.scratch() as scratch:
                apt.update()
                apt.download(_BUSYBOX.alone, scratch)
                (package,) = scratch.glob("*.deb")
                assert proc.run(["dpkg-deb", "--extract", package, scratch / "tree"]).ok
                kept.parent.mkdir(exist_ok=True)
                shutil.copy(scratch / "tree/bin/busybox", kept.with_suffix(".part"))
            kept.with_suffix(".part").rename(kept)
    return kept


def _write_service(root: Path, version: str, behaviour: Behaviour, seconds: int) -> None:
    wait = f"sleep {seconds} & wait $!\n" if behaviour == "slow" else ""
    service = _SERVICES.get(behaviour, _SERVES)
    well = behaviour != "fails-selftest"
    answer = json.dumps({"ok": well, "version": version})
    scripts = {
        SERVICE: service.format(version=version, seconds=seconds, wait=wait),
        HEALTHY: _HEALTH.get(behaviour, "exec test -e /dev/shm/ready\n"),
        SELFTEST: f"echo '{answer}'\nexit {0 if well else 1}\n",
    }
    (root / "bin").mkdir(parents=True)
    for (path,), text in scripts.items():
        file = root / path.lstrip("/")
        file.write_text(_SHELL + text)
        file.chmod(0o755)


def _labels(target: Target, version: str) -> dict[str, str]:
    wheel = f"fleetops-{version}-cp310-cp310-linux_aarch64.whl"
    return {
        "org.opencontainers.image.title": "fleetops",
        "org.opencontainers.image.version": version,
        "jetship.target": target.id,
        "jetship.pin": _pin(target).model_dump_json(),
        "jetship.wheel": wheel,
        "jetship.wheel.sha256": hashlib.sha256(wheel.encode()).hexdigest(),
    }


def _pin(target: Target) -> Pin:
    platform = target.platform
    interpreter = f"cp{platform.python.version.replace('.', '')}"
    code = tuple(PinnedCode(arch=str(one.arch), sass=True, ptx=False) for one in target.code)
    return Pin(
        tool=PinnedTool(version="0"),
        target=target.id,
        platform=platform.name,
        platform_kind=platform.kind,
        machine=platform.machine,
        torch=PinnedTorch(version="2.5.0", cuda="12.6", cxx11_abi=True),
        cuda=PinnedCuda(version="12.6", code=code),
        python=PinnedPython(interpreter=interpreter, abi=interpreter),
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
