import itertools
import re

import kubernetes_validate
import pytest
import yaml
from jetship.errors import ConfigError
from jetship.fleet.kubernetes import (
    GROUP_NUMBERS,
    Cluster,
    app_name,
    comments,
    label_commands,
    manifests,
)
from jetship.image.index import IndexRow
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import load_fleet
from jetship.targets.imageplan import ImagePlan
from jetship.targets.resolve import resolve
from jetship.targets.strategy import Health, Strategy

CATALOG = Catalog.load()
# From one that JetPack 5's Ubuntu may have to the newest that is known.
VERSIONS = ["1.27", "1.31", kubernetes_validate.latest_version()]
TARGETS = {
    "r32": resolve(CATALOG, board="tx2", jetpack="4.6")[0],
    "r35": resolve(CATALOG, board="xavier", jetpack="5.1")[0],
    "r36": resolve(CATALOG, board="orin", jetpack="6.2")[0],
    "server": resolve(CATALOG, arch="8.0", platform="server-cuda-11.8")[0],
    "open": resolve(CATALOG, arch="6.2,8.7", fat=True)[0],
}
ALL = {
    "command": ["python3", "-m", "robot"],
    "environment": {"LEVEL": 3},
    "mounts": ["/data:/data", "/etc/robot:/etc/robot:ro"],
    "ports": ["8080:80", "127.0.0.1:5000:50/udp"],
    "groups": ["dialout", "999"],
    "user": "1000:44",
    "shm_size": "512m",
    "registry": "registry.example:5000",
}


def cluster(*, privileged=False, health=None, strategy=None, namespace="robots", **plan):
    rows = {"repository": "acme/Ops_2".lower(), "smoke": ["python3", "-m", "ops.selftest"], **plan}
    made = ImagePlan.model_validate(rows)
    return Cluster(
        app=app_name(made),
        namespace=namespace,
        plan=made,
        health=health or Health(),
        strategy=Strategy.model_validate(strategy or {}),
        catalog=CATALOG,
        privileged=privileged,
    )


def row(target, digest=None):
    return IndexRow(
        target=target.id,
        platform=target.platform.name,
        machine=target.platform.machine,
        archs=(),
        l4t=target.platform.l4t,
        boards=("a", "b"),
        image=f"registry.example:5000/acme/ops:1-{target.id}",
        id=f"sha256:{'1' * 64}",
        digest=digest,
        architecture="arm64",
        version="1.0+jetpack62.torch251",
        wheel="ops.whl",
        wheel_sha256="2" * 64,
    )


def daemon_set(given, name="r36", **more):
    return manifests(given, [(TARGETS[name], row(TARGETS[name], **more))])[-1]


def pod(given, name="r36", **more):
    return daemon_set(given, name, **more)["spec"]["template"]["spec"]


CLUSTERS = {
    "plain": cluster(),
    "all": cluster(
        **ALL,
        health=Health(command=("true",), settle=0),
        strategy={"wave": "10%", "canary": 2, "pause": "confirm"},
    ),
    "beside": cluster(strategy={"swap": "beside", "wave": [3, 5]}, network="host"),
    "privileged": cluster(devices=["/dev/video0:/dev/cam:rw"], privileged=True, user="0"),
    "default": cluster(namespace="default", health=Health(selftest=False)),
}


@pytest.mark.parametrize(("name", "version"), list(itertools.product(CLUSTERS, VERSIONS)))
def test_the_api_servers_schemas_take_the_manifests(name, version):
    objects = manifests(CLUSTERS[name], [(target, row(target)) for target in TARGETS.values()])
    text = yaml.safe_dump_all(objects, sort_keys=False)
    for one in yaml.safe_load_all(text):
        kubernetes_validate.validate(one, version, strict=True)
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", name) for _, name in names)


def test_the_schemas_would_refuse_what_is_wrong():
    wrong = daemon_set(CLUSTERS["all"])
    wrong["spec"]["template"]["spec"]["containers"][0]["imagePullPolice"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def test_a_daemon_set_is_for_the_nodes_of_its_target_and_boards():
    spec = pod(CLUSTERS["plain"])
    assert spec["nodeSelector"] == {
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "arm64",
        "jetship/target": "sm87-jetpack-6.2",
    }
    ((term,),) = [
        one["matchExpressions"]
        for one in spec["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"]
    ]
    assert term == {"key": "jetship/board", "operator": "In", "values": ["a", "b"]}
    x86 = resolve(CATALOG, arch="8.0", platform="x86-64-cuda-12.4")[0]
    made = manifests(CLUSTERS["plain"], [(x86, row(x86))])[-1]
    assert made["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] == "amd64"


@pytest.mark.parametrize(
    ("name", "runtime", "groups"),
    [
        ("r32", "nvidia", [44]),
        ("r35", "nvidia", [44]),
        ("r36", "nvidia", [44]),
        ("server", "nvidia", None),
        ("open", None, None),
    ],
)
def test_the_gpu_comes_by_the_runtime_class_and_group_video(name, runtime, groups):
    spec = pod(CLUSTERS["plain"], name)
    assert spec.get("runtimeClassName") == runtime
    assert spec["securityContext"].get("supplementalGroups") == groups


def test_the_runtime_class_is_made_where_something_needs_it():
    plain = CLUSTERS["plain"]
    kinds = [one["kind"] for one in manifests(plain, [(TARGETS["open"], row(TARGETS["open"]))])]
    assert kinds == ["Namespace", "DaemonSet"]
    default = CLUSTERS["default"]
    found = manifests(default, [(TARGETS["r36"], row(TARGETS["r36"]))])
    assert [one["kind"] for one in found] == ["RuntimeClass", "DaemonSet"]
    assert found[0]["handler"] == "nvidia"


def test_what_deploy_yaml_says_of_a_container_is_in_the_pod():
    spec = pod(CLUSTERS["all"], digest=f"sha256:{'3' * 64}")
    (container,) = spec["containers"]
    assert container["image"] == f"registry.example:5000/acme/ops@sha256:{'3' * 64}"
    assert container["args"] == ["python3", "-m", "robot"]
    assert container["env"] == [{"name": "LEVEL", "value": "3"}]
    assert container["ports"] == [
        {"containerPort": 80, "hostPort": 8080},
        {"containerPort": 50, "hostPort": 5000, "hostIP": "127.0.0.1", "protocol": "UDP"},
    ]
    assert [(v.get("hostPath") or v["emptyDir"]) for v in spec["volumes"]] == [
        {"path": "/data"},
        {"path": "/etc/robot"},
        {"medium": "Memory", "sizeLimit": "512Mi"},
    ]
    assert [(m["mountPath"], m.get("readOnly")) for m in container["volumeMounts"]] == [
        ("/data", None),
        ("/etc/robot", True),
        ("/dev/shm", None),
    ]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "runAsGroup": 44,
        "supplementalGroups": [20, 44, 999],
    }


def test_a_pod_has_no_rights_unless_they_are_asked_for():
    spec = pod(CLUSTERS["plain"])
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["automountServiceAccountToken"] is False
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    asked = pod(CLUSTERS["privileged"])
    assert "runAsNonRoot" not in asked["securityContext"]
    assert asked["containers"][0]["securityContext"] == {"privileged": True}
    assert asked["containers"][0]["volumeMounts"] == [{"name": "device-0", "mountPath": "/dev/cam"}]


@pytest.mark.parametrize(
    ("name", "rolling"),
    [
        ("plain", {"maxUnavailable": 1}),
        ("all", {"maxUnavailable": "10%"}),
        ("beside", {"maxUnavailable": 0, "maxSurge": 3}),
    ],
)
def test_the_first_wave_is_how_many_pods_are_replaced_at_a_time(name, rolling):
    spec = daemon_set(CLUSTERS[name])["spec"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": rolling}


def test_health_becomes_the_probes():
    (plain,) = pod(CLUSTERS["plain"])["containers"]
    assert plain["startupProbe"]["exec"]["command"] == ["python3", "-m", "ops.selftest"]
    assert plain["startupProbe"]["timeoutSeconds"] == 120
    assert "readinessProbe" not in plain
    (both,) = pod(CLUSTERS["all"])["containers"]
    assert both["readinessProbe"] == {
        "exec": {"command": ["true"]},
        "timeoutSeconds": 120,
        "periodSeconds": 2,
    }
    (neither,) = pod(CLUSTERS["default"])["containers"]
    assert not {"startupProbe", "readinessProbe"} & set(neither)
    assert daemon_set(CLUSTERS["plain"])["spec"]["minReadySeconds"] == 10


def test_what_a_cluster_cannot_do_is_told_all_at_once():
    given = cluster(
        mounts=["models:/models"],
        devices=["/dev/video0"],
        network="none",
        groups=["render"],
        user="app:wheel",
    )
    with pytest.raises(ConfigError) as caught:
        daemon_set(given)
    said = caught.value.why
    assert caught.value.what.startswith("deploy.yaml says 6 things")
    for part in ("models:/models", "--privileged", "NetworkPolicy", "'render'", "'app'", "'wheel'"):
        assert part in said


def test_group_numbers_are_those_that_debian_and_ubuntu_never_change():
    # base-passwd, group.master: the same in Debian 12 and in Ubuntu 18.04 to 24.04.
    assert GROUP_NUMBERS["video"] == 44
    assert GROUP_NUMBERS["dialout"] == 20
    assert all(number < 100 for number in GROUP_NUMBERS.values())


def test_nodes_are_labelled_by_the_devices_of_deploy_yaml(tmp_path):
    path = tmp_path / "deploy.yaml"
    rows = "".join(f"    - {{name: n{n}, host: h{n}, board: orin}}\n" for n in range(60))
    path.write_text(
        "targets: [{arch: 8.7}, {arch: 6.2}]\nfleet:\n  defaults: {user: ops}\n  devices:\n"
        f"    - {{name: tx, host: tx, board: tx2}}\n{rows}"
    )
    _, fleet = load_fleet(path, CATALOG)
    commands = label_commands(fleet)
    assert commands[0] == ("kubectl label node tx jetship/target=sm62-debian-12 jetship/board=tx2")
    assert [len(re.findall(r" n\d+", line)) for line in commands] == [0, 50, 10]
    said = list(comments(CLUSTERS["plain"], fleet))
    assert f"  {commands[0]}" in said
    assert all(len(line) <= 100 for line in said if "kubectl label" not in line)


def test_names_are_those_that_a_cluster_takes():
    assert app_name(ImagePlan(repository="registry.example/acme/my_ops.v2", smoke=("x",))) == (
        "my-ops-v2"
    )
    name = daemon_set(CLUSTERS["plain"], "open")["metadata"]["name"]
    assert name == "ops-2-sm62-sm87-debian-12"
