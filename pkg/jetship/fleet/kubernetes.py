"""Manifests for k3s and Kubernetes: a DaemonSet for each target of deploy.yaml.

What a cluster needs that deploy.yaml says otherwise than Kubernetes can is an error, not a guess.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jetship.engine import OCI_NAMES
from jetship.errors import ConfigError
from jetship.image.index import IndexRow
from jetship.targets.catalog import Catalog
from jetship.targets.fleet import Fleet
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target
from jetship.targets.strategy import Health, Strategy

TARGET_LABEL = "jetship/target"
BOARD_LABEL = "jetship/board"
RUNTIME_CLASS = "nvidia"
# Kubernetes takes groups by number. These are fixed in Debian and Ubuntu, so in L4T as well
# (base-passwd, group.master).
GROUP_NUMBERS = {
    "tty": 5, "disk": 6, "kmem": 15, "dialout": 20, "cdrom": 24, "tape": 26, "audio": 29,
    "video": 44, "plugdev": 46,
}  # fmt: skip
_SIZES = {"k": "Ki", "m": "Mi", "g": "Gi"}
_NODES_A_COMMAND = 50

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Cluster:
    """What a cluster is to run.

    Args:
        app: the name of all that is made.
        namespace: where it is made; "default" is there already.
        plan: the `image` of deploy.yaml.
        health: its `health`.
        strategy: its `strategy`.
        catalog: the device lines of L4T.
        privileged: give pods the node's devices, which `image.devices` needs.
    """

    app: str
    namespace: str
    plan: ImagePlan
    health: Health
    strategy: Strategy
    catalog: Catalog
    privileged: bool = False


def app_name(plan: ImagePlan) -> str:
    """Return the last part of the image's name as Kubernetes takes names (RFC 1123)."""
    return re.sub(r"[^a-z0-9]+", "-", plan.repository.rpartition("/")[2])


def manifests(cluster: Cluster, images: Sequence[tuple[Target, IndexRow]]) -> list[Manifest]:
    """Return all objects, in the order in which they are applied.

    Args:
        cluster: what is to run, and how.
        images: the targets, each with its image.

    Raises:
        ConfigError: deploy.yaml says what a cluster cannot do; names all of it.
    """
    problems = list(_problems(cluster))
    if problems:
        raise ConfigError(
            f"deploy.yaml says {len(problems)} thing{'s' * (len(problems) > 1)} that a cluster "
            "cannot do",
            why="; ".join(problems),
            fix="change these, or keep a deploy.yaml of its own for the cluster: --deploy FILE",
        )
    found: list[Manifest] = []
    if cluster.namespace != "default":
        found.append(_object("v1", "Namespace", {"name": cluster.namespace}))
    if any(target.platform.kind != "emulation" for target, _ in images):
        # k3s makes it by itself; applying it once more changes nothing.
        made = _object("node.k8s.io/v1", "RuntimeClass", {"name": RUNTIME_CLASS})
        found.append({**made, "handler": RUNTIME_CLASS})
    return found + [_daemon_set(cluster, target, row) for target, row in images]


def label_commands(fleet: Fleet) -> list[str]:
    """Return the commands that tell a cluster which node is what, by the devices of deploy.yaml."""
    members: dict[tuple[str, str], list[str]] = {}
    for device in fleet.devices:
        members.setdefault((device.target.id, device.board.name), []).append(device.name)
    return [
        f"kubectl label node {' '.join(some)} {TARGET_LABEL}={target} {BOARD_LABEL}={board}"
        for (target, board), names in members.items()
        for some in (
            names[n : n + _NODES_A_COMMAND] for n in range(0, len(names), _NODES_A_COMMAND)
        )
    ]


def _problems(cluster: Cluster) -> Iterator[str]:
    plan = cluster.plan
    for mount in plan.mounts:
        if not mount.startswith("/"):
            yield f"image.mounts: {mount} is a volume of Docker's; name a folder of the node"
    if plan.devices and not cluster.privileged:
        yield (
            f"image.devices: only privileged pods have {', '.join(plan.devices)}; say "
            "--privileged, or use a device plugin"
        )
    if plan.network == "none":
        yield "image.network: none; a NetworkPolicy of the cluster can forbid traffic"
    user, _, group = plan.user.partition(":")
    groups = [word for word in (*plan.groups, group) if word and not word.isdecimal()]
    unknown = [word for word in groups if word not in GROUP_NUMBERS]
    unknown += [user] if user and not user.isdecimal() else []
    for word in unknown:
        yield f"{word!r} has to be a number: a cluster knows no names of users and groups"


def _object(version: str, kind: str, metadata: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": version, "kind": kind, "metadata": dict(metadata)}


def _daemon_set(cluster: Cluster, target: Target, row: IndexRow) -> Manifest:
    name = f"{cluster.app}-{re.sub('[^a-z0-9]+', '-', target.id)}"
    chosen = {"app.kubernetes.io/name": cluster.app, TARGET_LABEL: target.id}
    labels = {
        **chosen,
        "app.kubernetes.io/version": re.sub(r"[^A-Za-z0-9._-]", "_", row.version)[:63],
        "app.kubernetes.io/managed-by": "jetship",
    }
    made = _object(
        "apps/v1", "DaemonSet", {"name": name, "namespace": cluster.namespace, "labels": labels}
    )
    made["spec"] = {
        "selector": {"matchLabels": chosen},
        "minReadySeconds": round(cluster.health.settle),
        "updateStrategy": _update_strategy(cluster.strategy),
        "template": {
            "metadata": {
                "labels": labels,
                "annotations": {
                    "jetship/wheel.sha256": row.wheel_sha256,
                    "jetship/image.id": row.id,
                },
            },
            "spec": _pod(cluster, target, row),
        },
    }
    return made


def _update_strategy(strategy: Strategy) -> Manifest:
    """Return how many pods are changed at a time: the first wave's size."""
    first = strategy.wave[0]
    size: int | str = str(first) if first.percent else first.amount
    beside = strategy.swap == "beside"
    rolling = {"maxUnavailable": 0, "maxSurge": size} if beside else {"maxUnavailable": size}
    return {"type": "RollingUpdate", "rollingUpdate": rolling}


def _pod(cluster: Cluster, target: Target, row: IndexRow) -> Manifest:
    plan, line = cluster.plan, cluster.catalog.devices_on(target.platform)
    boards = {"key": BOARD_LABEL, "operator": "In", "values": list(row.boards)}
    numbers = [_number(group) for group in (*(line.groups if line else ()), *plan.groups)]
    volumes, mounts = _volumes(plan)
    uid, _, gid = plan.user.partition(":")
    security = {
        "runAsNonRoot": uid != "0" or None,
        "runAsUser": int(uid) if uid else None,
        "runAsGroup": _number(gid) if gid else None,
        "supplementalGroups": sorted(set(numbers)) or None,
    }
    pod = {
        # Labels of nodes that somebody set: what a board is and which L4T it has cannot be asked
        # for, and an image that a node cannot run must not even be pulled there.
        "nodeSelector": {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": OCI_NAMES[target.platform.machine][0],
            TARGET_LABEL: target.id,
        },
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [boards]}]
                }
            }
        },
        "runtimeClassName": RUNTIME_CLASS if target.platform.kind != "emulation" else None,
        "hostNetwork": plan.network == "host" or None,
        "automountServiceAccountToken": False,
        "securityContext": _given(security) or None,
        "containers": [_container(cluster, row, mounts)],
        "volumes": volumes or None,
    }
    return _given(pod)


def _container(cluster: Cluster, row: IndexRow, mounts: Sequence[Manifest]) -> Manifest:
    plan = cluster.plan
    if cluster.privileged:
        security: Manifest = {"privileged": True}
    elif plan.user.partition(":")[0] == "0":
        security = {"allowPrivilegeEscalation": False}
    else:
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return _given(
        {
            "name": cluster.app,
            "image": row.reference,
            "imagePullPolicy": "IfNotPresent",
            # `command` of Docker is what Kubernetes calls args; an entrypoint of the base stays.
            "args": list(plan.command) or None,
            "env": [{"name": name, "value": value} for name, value in plan.environment.items()]
            or None,
            "ports": [_port(port) for port in plan.ports] or None,
            "securityContext": security,
            "volumeMounts": list(mounts) or None,
            **_probes(plan, cluster.health),
        }
    )


def _probes(plan: ImagePlan, health: Health) -> Manifest:
    probes: Manifest = {}
    timeout = max(1, round(health.timeout))
    if health.selftest:
        probes["startupProbe"] = {
            "exec": {"command": list(plan.smoke)},
            "timeoutSeconds": timeout,
            "periodSeconds": 10,
            "failureThreshold": 3,
        }
    if health.command:
        probes["readinessProbe"] = {
            "exec": {"command": list(health.command)},
            "timeoutSeconds": timeout,
            "periodSeconds": max(1, round(health.interval)),
        }
    return probes


def _volumes(plan: ImagePlan) -> tuple[list[Manifest], list[Manifest]]:
    volumes: list[Manifest] = []
    mounts: list[Manifest] = []
    for number, mount in enumerate(plan.mounts):
        source, inside, *mode = mount.split(":")
        volumes.append({"name": f"mount-{number}", "hostPath": {"path": source}})
        read_only = {"readOnly": True} if mode == ["ro"] else {}
        mounts.append({"name": f"mount-{number}", "mountPath": inside, **read_only})
    for number, device in enumerate(plan.devices):
        source, _, inside = device.partition(":")
        path = {"path": source, "type": "CharDevice"}
        volumes.append({"name": f"device-{number}", "hostPath": path})
        mounts.append({"name": f"device-{number}", "mountPath": inside.partition(":")[0] or source})
    if plan.shm_size:
        size = re.sub(r"[kmg]$", lambda unit: _SIZES[unit[0]], plan.shm_size)
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108 - the container's
    return volumes, mounts


def _port(text: str) -> Manifest:
    published, _, protocol = text.partition("/")
    before, _, container = published.rpartition(":")
    address, _, host = before.rpartition(":")
    return _given(
        {
            "containerPort": int(container),
            "hostPort": int(host),
            "hostIP": address.strip("[]") or None,
            "protocol": protocol.upper() or None,
        }
    )


def _number(group: str) -> int:
    return int(group) if group.isdecimal() else GROUP_NUMBERS[group]


def _given(keys: Mapping[str, Any]) -> Manifest:
    return {key: value for key, value in keys.items() if value is not None}


def comments(cluster: Cluster, fleet: Fleet) -> Iterator[str]:
    """Yield what somebody has to know before the manifests are applied, line by line."""
    if fleet.devices:
        yield "Nodes are chosen by labels. Where nodes are called as the devices of deploy.yaml:"
        yield from (f"  {line}" for line in label_commands(fleet))
    else:
        yield f"Nodes are chosen by the labels {TARGET_LABEL} and {BOARD_LABEL}."
    yield "As many pods are replaced at a time as the first wave has, and no further ones while"
    yield "these are not ready. Canaries, max_failures and pause have no counterpart, and nothing"
    yield f"goes back by itself: kubectl -n {cluster.namespace} rollout undo ds/NAME"
