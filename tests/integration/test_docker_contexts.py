"""The engine that the docker command would take: contexts, made by that very command, and TLS."""

import contextlib
import os
import socket

import pytest
from engine import started_engine
from jetship import proc
from jetship.engine import connect
from jetship.errors import ToolMissingError


def openssl(folder, *words):
    done = proc.run(["openssl", *words], cwd=folder)
    assert done.ok, done.stderr


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """An authority, and what it signed for a server at 127.0.0.1 and for a client."""
    folder = tmp_path_factory.mktemp("certificates")
    openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=ca", "-keyout", "ca-key.pem", "-out", "ca.pem")  # fmt: skip
    for name, use in (("server", "serverAuth"), ("client", "clientAuth")):
        (folder / f"{name}.ext").write_text(
            f"subjectAltName=IP:127.0.0.1\nextendedKeyUsage={use}\n"
        )
        openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}",
                "-keyout", f"{name}-key.pem", "-out", f"{name}.csr")  # fmt: skip
        openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey",
                "ca-key.pem", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext",
                "-out", f"{name}.pem")  # fmt: skip
    for name, source in (("cert.pem", "client.pem"), ("key.pem", "client-key.pem")):
        (folder / name).write_bytes((folder / source).read_bytes())
    return folder


@pytest.fixture(scope="module")
def engine_with_tls(certificates):
    """The address and the identity of an engine that takes nobody without a certificate."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    host = f"tcp://127.0.0.1:{port}"
    keys = {"tlscacert": "ca.pem", "tlscert": "server.pem", "tlskey": "server-key.pem"}
    words = ["--tlsverify", f"--host={host}"]
    words += [f"--{option}={certificates / name}" for option, name in keys.items()]
    with started_engine(*words) as (client, _):
        yield host, client.info()["ID"]


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """The docker command's own settings, with nothing in them.

    The SDK looks for contexts beside config.json, so that has to be there.
    """
    (tmp_path / "config.json").write_text("{}")
    names = ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
    # With these, requests trusts others than the SDK tells it to.
    for name in (*names, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


def docker_command(*words):
    done = proc.run(["docker", *words], env=dict(os.environ))
    assert done.ok, done.stderr


def the_engine():
    with contextlib.closing(connect()) as client:
        return client.info()["ID"]


def test_a_context_with_certificates_leads_to_its_engine(engine_with_tls, certificates, settings):
    host, identity = engine_with_tls
    keys = ",".join(f"{key}={certificates}/{key}.pem" for key in ("ca", "cert", "key"))
    docker_command("context", "create", "line", "--docker", f"host={host},{keys}")
    docker_command("context", "use", "line")
    assert the_engine() == identity


def test_a_context_may_be_named_for_one_run(engine_with_tls, certificates, settings, monkeypatch):
    host, identity = engine_with_tls
    keys = ",".join(f"{key}={certificates}/{key}.pem" for key in ("ca", "cert", "key"))
    docker_command("context", "create", "line", "--docker", f"host={host},{keys}")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.setenv("DOCKER_CONTEXT", "line")
    assert the_engine() == identity


def test_certificates_of_the_environment_are_taken(
    engine_with_tls, certificates, settings, monkeypatch
):
    host, identity = engine_with_tls
    monkeypatch.setenv("DOCKER_HOST", host)
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", str(certificates))
    assert the_engine() == identity
    monkeypatch.delenv("DOCKER_TLS_VERIFY")
    monkeypatch.delenv("DOCKER_CERT_PATH")
    with pytest.raises(ToolMissingError, match="no Docker engine answers at tcp://127"):
        connect()
