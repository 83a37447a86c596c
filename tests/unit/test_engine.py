import hashlib
import json

import pytest
from jetship.engine import connect, endpoint
from jetship.errors import ConfigError, ToolMissingError


@pytest.fixture
def context(tmp_path, monkeypatch):
    """Docker's own files of a context that is in use."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.delenv("DOCKER_CONTEXT", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))

    def use(host):
        folder = tmp_path / "contexts/meta" / hashlib.sha256(b"line").hexdigest()
        folder.mkdir(parents=True)
        endpoints = {"docker": {"Host": host, "SkipTLSVerify": False}}
        meta = {"Name": "line", "Metadata": {}, "Endpoints": endpoints}
        (folder / "meta.json").write_text(json.dumps(meta))
        (tmp_path / "config.json").write_text(json.dumps({"currentContext": "line"}))

    return use


def test_the_context_of_the_docker_command_is_taken(context, monkeypatch):
    context("tcp://192.0.2.7:2375")
    assert endpoint().host == "tcp://192.0.2.7:2375"
    monkeypatch.setenv("DOCKER_HOST", "unix:///other.sock")
    assert endpoint().host == "unix:///other.sock"
    monkeypatch.setenv("DOCKER_CONTEXT", "line")
    assert endpoint().host == "tcp://192.0.2.7:2375"
    monkeypatch.setenv("DOCKER_CONTEXT", "lin")
    with pytest.raises(ConfigError, match="there is no docker context lin"):
        endpoint()


def test_certificates_that_are_not_there_are_an_error(monkeypatch, tmp_path):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.7:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="settings of the docker command cannot be read"):
        endpoint()


def test_an_engine_behind_ssh_is_reached_by_its_forwarded_socket(context):
    context("ssh://ops@line.example")
    with pytest.raises(ToolMissingError) as caught:
        connect()
    assert (
        "ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock ssh://ops@line.example"
        in caught.value.fix
    )


def test_docker_host_comes_first(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    assert endpoint().host == "tcp://192.0.2.1:2376"


def test_default_endpoint_is_the_local_socket(tmp_path, monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert endpoint().host.endswith("docker.sock")
