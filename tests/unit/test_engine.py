from jetship.engine import endpoint


def test_docker_host_comes_first(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2376")
    assert endpoint() == "tcp://192.0.2.1:2376"


def test_default_endpoint_is_the_local_socket(tmp_path, monkeypatch):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert endpoint().endswith("docker.sock")
