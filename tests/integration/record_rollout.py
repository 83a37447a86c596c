"""Record a rollout in a terminal: a canary, a wave that fails, and all devices going back.

    python tests/integration/record_rollout.py docs/recordings/failing-wave.cast

The devices are those of the test fleet, and what is recorded is what a person sees, in the
asciicast format (version 2) that `asciinema play` shows.
"""

import fcntl
import json
import os
import pty
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

from arm64images import make_image
from devices import running_fleet
from jetship.proc import shown
from rollouts import Deployer

CAMERA = "/home/robot/camera"
COLUMNS, LINES = 110, 40


def main(out: Path) -> None:
    """Make the fleet, roll out twice, and write the recording of the second one."""
    with running_fleet(4) as fleet, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for device in fleet.devices:
            device.inside("install", "-d", "-o", "robot", CAMERA)
        for device in fleet.devices[:3]:
            device.inside("touch", f"{CAMERA}/works")
        settings = {"image": {"mounts": [f"{CAMERA}:/camera"]}}
        deployer = Deployer(fleet, folder, settings=settings)
        deployer.deploy(make_image(folder, "1.0")).good()
        new = make_image(folder, "1.1")
        fleet.builder.load(new)
        deployer.write(
            health={"command": ["test", "-e", "/camera/works"], "timeout": 4, "settle": 2},
            strategy={"canary": 1, "wave": 2, "max_failures": 0, "rollback": "all"},
        )
        os.environ["DOCKER_HOST"] = f"unix://{fleet.builder.socket}"
        events = record(folder, ["deploy", "--image", "1.1"])
        events += record(folder, ["status"], after=events[-1][0] + 2)
    header = {"version": 2, "width": COLUMNS, "height": LINES, "env": {"TERM": "xterm-256color"}}
    rows = [header, *([round(at, 3), "o", text] for at, text in events)]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def record(folder: Path, words: list[str], after: float = 0.0) -> list[tuple[float, str]]:
    """Run a task in a terminal of its own; return what it printed, and when, in seconds."""
    argv = [sys.executable, "-m", "invoke", "--search-root", str(Path(__file__).parents[2])]
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execv(argv[0], [*argv, *words])  # noqa: S606
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began = time.monotonic()
    events = [(after, f"$ invoke {shown(words)}\r\n")]
    while chunk := _read(terminal):
        events.append((after + time.monotonic() - began, chunk.decode(errors="replace")))
    os.waitpid(child, 0)
    return events


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # the other end is closed
        return b""


if __name__ == "__main__":
    main(Path(sys.argv[1]))
