"""How a container of an image is run on a board: one description for every way to start it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jetship.targets.catalog import Catalog
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Board, Platform

_ALL_GPUS = {
    "resources": {
        "reservations": {"devices": [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]}
    }
}


@dataclass(frozen=True)
class Container:
    """What a container is given, apart from its name, its restarts and its command.

    Args:
        runtime: the engine's runtime, "" for its own.
        all_gpus: whether the engine is asked for all GPUs (`--gpus all`).
        platform: OCI name of the machine where it is not the engine's own, as linux/arm64.
        devices: device nodes (/dev/nvmap), or a CDI device (nvidia.com/gpu=all).
        groups: groups of the image's /etc/group that its user is in.
        environment: variables.
        mounts: /on/the/device:/in/the/container[:ro].
        ports: published ports.
        network: the network, "" for the engine's own.
        user: the user, "" for the image's own.
        shm_size: the size of /dev/shm, "" for the engine's own.
    """

    runtime: str = ""
    all_gpus: bool = False
    platform: str = ""
    devices: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    network: str = ""
    user: str = ""
    shm_size: str = ""

    def words(self) -> list[str]:
        """Return the options of `docker run` and `docker create`."""
        single = {
            "--platform": self.platform,
            "--runtime": self.runtime,
            "--gpus": "all" if self.all_gpus else "",
            "--network": self.network,
            "--user": self.user,
            "--shm-size": self.shm_size,
        }
        many = {
            "--device": self.devices,
            "--group-add": self.groups,
            "--env": [f"{name}={value}" for name, value in self.environment.items()],
            "--volume": self.mounts,
            "--publish": self.ports,
        }
        words = [word for option, value in single.items() if value for word in (option, value)]
        return words + [
            word for option, row in many.items() for one in row for word in (option, one)
        ]

    def service(self, image: str, command: Sequence[str]) -> dict[str, Any]:
        """Return it as a service of a compose.yaml (the Compose Specification's own keys)."""
        found: dict[str, Any] = {
            "image": image,
            "command": _undollared(command),
            "platform": self.platform,
            "runtime": self.runtime,
            "deploy": _ALL_GPUS if self.all_gpus else {},
            "devices": [*self.devices],
            "group_add": [*self.groups],
            "environment": dict(
                zip(self.environment, _undollared(self.environment.values()), strict=True)
            ),
            "volumes": _undollared(self.mounts),
            "ports": [*self.ports],
            "network_mode": self.network,
            "user": self.user,
            "shm_size": self.shm_size,
        }
        return {key: value for key, value in found.items() if value}


def _undollared(texts: Any) -> list[str]:
    """Compose puts variables of its own environment into a text; $$ is a dollar."""
    return [text.replace("$", "$$") for text in texts]


def container_for(
    platform: Platform,
    board: Board,
    catalog: Catalog,
    plan: ImagePlan | None = None,
    *,
    cdi: bool = False,
) -> Container:
    """Return how an image of a platform is run on a board.

    An image of an open platform, which no Jetson runs, is given no GPU.

    Args:
        platform: what the image was built for.
        board: what it is run on.
        catalog: the device nodes of each L4T release.
        plan: the `image` of deploy.yaml, with what the user's program needs.
        cdi: name the GPU by the Container Device Interface in place of the runtime, where
            the release has that.
    """
    gpu: dict[str, Any] = {}
    line = catalog.devices_on(platform)
    if board.kind == "server" and platform.kind != "emulation":
        gpu = {"all_gpus": True}
    elif line is not None and cdi and line.cdi:
        gpu = {"devices": (line.cdi,), "groups": line.groups}
    elif line is not None:
        nodes = tuple(f"/dev/{node}" for node in line.nodes)
        gpu = {"runtime": line.runtime, "devices": nodes, "groups": line.groups}
    elif platform.kind == "jetpack":
        gpu = {"runtime": "nvidia"}
    if plan is None:
        return Container(**gpu)
    return Container(
        runtime=gpu.get("runtime", ""),
        all_gpus=gpu.get("all_gpus", False),
        devices=(*gpu.get("devices", ()), *plan.devices),
        groups=tuple(dict.fromkeys((*gpu.get("groups", ()), *plan.groups))),
        environment=plan.environment,
        mounts=plan.mounts,
        ports=plan.ports,
        network=plan.network,
        user=plan.user,
        shm_size=plan.shm_size,
    )


def create_words(
    platform: Platform, board: Board, catalog: Catalog, plan: ImagePlan
) -> tuple[str, ...]:
    """Return the words between `docker create` and the image for a device of the fleet.

    Name, labels and restarts are the rollout's own; the command is `plan.command`.
    """
    return tuple(container_for(platform, board, catalog, plan).words())
