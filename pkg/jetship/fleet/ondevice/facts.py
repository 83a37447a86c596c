"""What a device says of itself."""

import os
import re
import subprocess  # noqa: TID251 - jetship.proc is not on the device
import time
from typing import Any, Dict, List

from jetship.fleet.ondevice.engine import Engine, EngineError
from jetship.fleet.ondevice.folder import Folder, State

IMAGES_AT_ONCE = 50


def device_facts(folder: Folder, engine: Engine, state: State) -> Dict[str, Any]:
    """Return the facts of the machine, of its engine and of the application's state."""
    facts = machine_facts()
    facts.update(engine_facts(engine))
    root = facts.pop("root") or folder.path
    facts["disk_free_bytes"], disk = free(root)
    facts["state_free_bytes"], own = free(folder.path)
    facts["one_disk"] = disk == own
    facts["container"] = container_state(engine, state) if facts["docker"] else ""
    facts["state"] = {
        "current": installed(state["current"]),
        "previous": installed(state["previous"]),
        "unfinished": state["swap"]["phase"] if state["swap"] else "",
        "last": state["last"],
        "note": state["note"],
    }
    return facts


def machine_facts() -> Dict[str, Any]:
    """Return what the kernel and the files of JetPack say."""
    release = re.search(r"\bR(\d+)\b.*?REVISION: *([0-9.]+)", text("/etc/nv_tegra_release"))
    memory = re.search(r"^MemTotal: *(\d+) kB", text("/proc/meminfo"), re.MULTILINE)
    return {
        "machine": output(["uname", "-m"]),
        "l4t": "r%s.%s" % release.groups() if release else "",
        "cuda": cuda_version(),
        "model": text("/proc/device-tree/model").strip("\0\n "),
        "memory_bytes": int(memory.group(1)) * 1024 if memory else 0,
        "clock": time.time(),
    }


def cuda_version() -> str:
    """Return major.minor of /usr/local/cuda, which says it in one of two files since CUDA 7."""
    found = re.search(
        r'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"(\d+\.\d+)', text("/usr/local/cuda/version.json")
    ) or re.search(r"CUDA Version (\d+\.\d+)", text("/usr/local/cuda/version.txt"))
    return found.group(1) if found else ""


def engine_facts(engine: Engine) -> Dict[str, Any]:
    """Return what the engine says; where none answers, why not."""
    facts: Dict[str, Any] = {"docker": "", "docker_error": "", "runtimes": [], "root": "",
                             "containerd_store": False, "images": [], "chains": []}  # fmt: skip
    try:
        info = engine.info()
        facts["docker"] = info["ServerVersion"]
        facts["runtimes"] = sorted(info.get("Runtimes") or {})
        facts["root"] = info.get("DockerRootDir") or ""
        facts["containerd_store"] = keeps_in_containerd(info)
        for image, layers in images(engine).items():
            facts["images"].append(image)
            facts["chains"].append(layers)
    except EngineError as error:
        facts.update(docker="", docker_error=str(error))
    return facts


def keeps_in_containerd(info: Dict[str, Any]) -> bool:
    """Return whether an engine knows an image by its manifest, and no layer by what is below it."""
    return any("io.containerd.snapshotter" in str(row) for row in info.get("DriverStatus") or [])


def images(engine: Engine) -> Dict[str, List[str]]:
    """Return the ids of the engine's images, with their layers from the bottom up."""
    ids = sorted(set(engine.call(["image", "ls", "--quiet", "--no-trunc"]).split()))
    found: Dict[str, List[str]] = {}
    for start in range(0, len(ids), IMAGES_AT_ONCE):
        words = ["image", "inspect", "--format", "{{.Id}}{{range .RootFS.Layers}} {{.}}{{end}}"]
        # One that is deleted meanwhile makes an error, and the others are told nevertheless.
        done = engine.try_call(words + ids[start : start + IMAGES_AT_ONCE], 60)
        if done.status and not done.stdout.strip():
            raise EngineError("`docker image inspect` failed: " + done.stderr.strip()[-600:])
        for line in done.stdout.splitlines():
            if line.strip():
                image, *layers = line.split()
                found[image] = layers
    return found


def container_state(engine: Engine, state: State) -> str:
    """Return what the engine says of the current container."""
    if not state["current"]:
        return ""
    try:
        found = engine.container(state["current"]["container"])
    except EngineError:
        return ""
    return str(found["State"]["Status"]) if found else "missing"


def installed(entry: Any) -> Any:
    """Return what others are told of a release."""
    return {key: entry[key] for key in ("image", "container", "release")} if entry else None


def free(path: str) -> Any:
    """Return the free bytes of the disk on which a path lies, and which disk that is."""
    # The engine's folder may be closed to this user; the one above is on the same disk, as a rule.
    while True:
        try:
            found = os.statvfs(path)
            return found.f_bavail * found.f_frsize, os.stat(path).st_dev
        except OSError:
            if path in ("/", ""):
                return 0, -1
            path = os.path.dirname(path)


def output(words: List[str]) -> str:
    """Return what a program writes, or "" where it is not there or fails."""
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace").strip()


def text(path: str) -> str:
    """Return a file's content, or "" where it cannot be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""
