"""compose.yaml and engine settings for a board, as files to copy to the device."""

import json
import textwrap
from collections.abc import Mapping, Sequence

import yaml

from jetship.image.container import Container, container_for
from jetship.image.runline import board_line, shown_platform
from jetship.targets.catalog import Catalog, DeviceLine
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Board, Target
from jetship.targets.strategy import Health

COMPOSE = "compose.yaml"
COMPOSE_CDI = "compose.cdi.yaml"
DAEMON = "daemon.json"
# What NVIDIA's Container Toolkit writes with `nvidia-ctk runtime configure --runtime=docker`.
_DAEMON = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}


def compose_files(
    *,
    target: Target,
    board: Board,
    image: str,
    catalog: Catalog,
    plan: ImagePlan,
    health: Health,
) -> Mapping[str, str]:
    """Return the files for a board by name: compose.yaml, and what the GPU needs of the engine.

    Args:
        target: what the image was built for.
        board: what it is to run on.
        image: its name.
        catalog: the device nodes of each L4T release.
        plan: the `image` of deploy.yaml.
        health: its `health`; the command becomes the service's health check.
    """
    platform = shown_platform(target, board, catalog)
    line = catalog.devices_on(platform)
    note = board_line(target, board, image, catalog).note
    service = plan.repository.rpartition("/")[2]

    def text(container: Container, head: Sequence[str]) -> str:
        body = container.service(image, plan.command)
        body |= {"restart": "unless-stopped", **_health_check(health)}
        return _commented([*head, *([note] if note else [])]) + yaml.safe_dump(
            {"services": {service: body}}, sort_keys=False, width=100
        )

    head = [f"{board.title}, {platform.title}: docker compose up -d"]
    files = {COMPOSE: text(container_for(platform, board, catalog, plan), [*head, *_runtime(line)])}
    if line is not None:
        files[DAEMON] = json.dumps(_DAEMON, indent=2) + "\n"
    if line is not None and line.cdi:
        container = container_for(platform, board, catalog, plan, cdi=True)
        files[COMPOSE_CDI] = text(container, [*head, *_CDI])
    return files


def _runtime(line: DeviceLine | None) -> list[str]:
    if line is None:
        return []
    needs = (
        f"Its engine needs the runtime `{line.runtime}`: {DAEMON} is what has to be in "
        "/etc/docker/daemon.json (JetPack's installer puts it there)."
    )
    adds = "Beside `devices`, that runtime adds each of these that the board has, below /dev:"
    return [needs, f"{adds} {' '.join(line.listed)}"]


_CDI = """\
In place of the runtime, the GPU is named by the Container Device Interface. On the device, once
for each change of its drivers: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
Docker Engine 25 or newer; where it does not know such devices yet, {"features": {"cdi": true}}
in /etc/docker/daemon.json.
""".splitlines()


def _commented(sentences: Sequence[str]) -> str:
    lines = [
        line
        for one in sentences
        for line in textwrap.wrap(one, 96, break_long_words=False, break_on_hyphens=False)
    ]
    return "".join(f"# {line}\n" for line in lines)


def _health_check(health: Health) -> dict[str, object]:
    if not health.command:
        return {}
    return {
        "healthcheck": {
            "test": ["CMD", *(word.replace("$", "$$") for word in health.command)],
            "interval": f"{health.interval:g}s",
            "timeout": f"{health.timeout:g}s",
            "start_period": f"{health.timeout:g}s",
        }
    }
