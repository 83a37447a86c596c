import pytest
from jetship.targets.imageplan import ImagePlan
from pydantic import ValidationError

PLAIN = {"repository": "acme/ops", "smoke": ["true"]}


def plan(**more):
    return ImagePlan.model_validate(PLAIN | more)


def test_the_registry_is_part_of_the_name():
    assert plan().name == "acme/ops"
    assert plan(registry="registry.example:5000").name == "registry.example:5000/acme/ops"
    assert plan(registry="registry.example/team").name == "registry.example/team/acme/ops"


def test_what_a_container_needs_is_taken():
    found = plan(
        mounts=["/data:/data", "/etc/robot:/etc/robot:ro", "models:/models"],
        devices=["/dev/video0", "/dev/ttyUSB0:/dev/arm:rw"],
        ports=["8080:80", "127.0.0.1:5000:5000/tcp", "9000:9000/udp"],
        environment={"LEVEL": 3, "NAME": "arm", "EMPTY": ""},
        user="1000:video",
        shm_size="512m",
    )
    assert found.environment == {"LEVEL": "3", "NAME": "arm", "EMPTY": ""}
    assert found.mounts[1] == "/etc/robot:/etc/robot:ro"


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("repository", "acme/ops:1", "without a tag"),
        ("repository", "Acme/Ops", "lower case"),
        ("registry", "https://registry.example", "is not a registry"),
        ("tag", "{version", "brace"),
        ("tag", "{versoin}", "there are {version}, {target}"),
        ("tag", "{version.__class__}", "brace|does not make tags"),
        ("tag", "{0}", "brace"),
        ("tag", "a b", "does not make tags"),
        ("tag", "", "does not make tags"),
        ("smoke", [], "at least 1"),
        ("smoke", [""], "at least 1 character"),
        ("mounts", ["data"], "is not of the form"),
        ("mounts", ["./data:/data"], "whole path"),
        ("mounts", ["/data:data"], "is not of the form"),
        ("mounts", ["/data:/data:rx"], "is not of the form"),
        ("devices", ["video0"], "is not a device"),
        ("ports", ["80"], "8080:80"),
        ("ports", ["80:70000"], "8080:80"),
        ("environment", {"A": True}, "valid string"),
        ("environment", {"A": None}, "valid string"),
        ("user", "me too", "is not a user"),
        ("shm_size", "0", "pattern"),
        ("network", "container:x", "'bridge', 'host' or 'none'"),
        ("restart", "always", "Extra inputs"),
    ],
)
def test_what_docker_would_refuse_or_misread_is_refused_before(key, value, said):
    with pytest.raises(ValidationError, match=said):
        plan(**{key: value})


def test_ports_of_a_container_in_the_hosts_network_mean_nothing():
    with pytest.raises(ValidationError, match="ports are not published with network: host"):
        plan(network="host", ports=["80:80"])
