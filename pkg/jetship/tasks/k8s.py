"""The task `k8s`."""

import shlex
from pathlib import Path

import yaml
from invoke.context import Context

from jetship import console
from jetship.store import write_atomically
from jetship.targets.deployment import load_fleet
from jetship.targets.imageplan import INDEX_FILE
from jetship.tasks.command import command
from jetship.tasks.request import DEPLOY_FILE, DEPLOY_HELP, JSON_HELP, Known, image_plan_of

DEFAULT_INDEX = Path("dist") / INDEX_FILE


@command(
    records={"known": Known},
    help={
        "deploy": DEPLOY_HELP,
        "index": f"which image each target has, from `image --all` (default: {DEFAULT_INDEX})",
        "namespace": "where it is made (default: the last part of the image's name)",
        "privileged": "give the pods the node's devices, which `image.devices` needs",
        "out": "write the manifests to this file instead of stdout",
        "json": JSON_HELP + ", a List as kubectl takes it",
    },
)
def k8s(
    _: Context,
    *,
    known: Known,
    deploy: str = str(DEPLOY_FILE),
    index: str = str(DEFAULT_INDEX),
    namespace: str = "",
    privileged: bool = False,
    out: str = "",
    json: bool = False,
) -> None:
    """Print manifests for k3s or Kubernetes: a DaemonSet for each target of deploy.yaml.

    For fleets that have a cluster, or are larger than one machine reaches by SSH. Nodes are chosen
    by labels (jetship/target and jetship/board), for which the output has the commands; pods run
    with the RuntimeClass nvidia, which k3s makes by itself where a node has NVIDIA's runtime.
    `strategy` becomes the rolling update, `health` the probes. Images come from `image.registry`,
    by digest once they were pushed; without one, `docker save IMAGE | k3s ctr images import -`
    brings an image to a node.

        invoke image --all && invoke k8s --out fleet-k8s.yaml && kubectl apply -f fleet-k8s.yaml
    """
    from jetship.fleet.kubernetes import Cluster, app_name, comments, manifests
    from jetship.image.index import ImageIndex

    catalog = known.catalog(deploy)
    plan = image_plan_of(catalog, deploy)[1]
    deployment, fleet = load_fleet(Path(deploy), catalog)
    found = ImageIndex.read(Path(index))
    app = app_name(plan)
    cluster = Cluster(
        app=app,
        namespace=namespace or app,
        plan=plan,
        health=deployment.health,
        strategy=deployment.strategy,
        catalog=catalog,
        privileged=privileged,
    )
    objects = manifests(cluster, [(target, found.require(target)) for target in fleet.targets])
    if json:
        console.emit_json({"apiVersion": "v1", "kind": "List", "items": objects})
        return
    head = "".join(f"# {line}\n" for line in comments(cluster, fleet))
    text = head + yaml.safe_dump_all(objects, sort_keys=False, width=100)
    if not out:
        console.emit(text.rstrip())
        return
    write_atomically(Path(out), text.encode())
    console.note(f"{out}: kubectl apply -f {shlex.quote(out)}")
