import os
import socket
from typing import NoReturn

import pytest
from hypothesis import settings
from jetship import usage
from jetship.store import Store
from jetship.targets.catalog import Catalog
from jetship.targets.model import Platform

# How long an example takes says more about the machine than about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def _refuse(*args: object, **options: object) -> NoReturn:
    raise AssertionError("a unit test reached for the network")


@pytest.fixture(autouse=True)
def _no_outside_world(monkeypatch, tmp_path_factory):
    """Keep every test off the network and out of the user's own cache."""
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, _refuse)
    monkeypatch.setattr(socket, "getaddrinfo", _refuse)
    monkeypatch.setenv("JETSHIP_CACHE", str(tmp_path_factory.mktemp("cache")))
    for name in (
        "JETSHIP_VERBOSE", "JETSHIP_GUARD", "JETSHIP_DEBIAN_MIRROR", "SOURCE_DATE_EPOCH",
        "TORCH_CUDA_ARCH_LIST",
    ):  # fmt: skip
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def _nothing_in_use():
    """Let go of what a test has used, as the end of a process does."""
    yield
    while usage._held:
        os.close(usage._held.popitem()[1])


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog.load()


@pytest.fixture(scope="session")
def debian_12(catalog) -> Platform:
    return catalog.platform("debian-12")
