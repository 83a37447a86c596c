import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from arm64images import Image, make_image
from devices import Fleet, running_fleet
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.model import Toolchain
from jetship.toolchain.prepare import prepare
from product import PROJECTS, invoke


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """Let signals end tests and the programs that they start.

    Whoever starts the tests in the background of a script ignores SIGINT, and with nohup SIGHUP;
    children ignore what their parents do.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def toolchain() -> Toolchain:
    """The toolchain that all tests share which are not about getting one."""
    return prepare(resolve(Catalog.load(), arch="6.2")[0], Store(default_root()))


@pytest.fixture
def dist(tmp_path) -> Path:
    return tmp_path / "dist"


@pytest.fixture
def cache(toolchain, tmp_path) -> Path:
    """A cache of this test's own, with the shared toolchain in it."""
    root = tmp_path / "cache"
    root.mkdir()
    (root / "trees").symlink_to(toolchain.root.parent)
    return root


@pytest.fixture(scope="session")
def kernel_wheel(toolchain, tmp_path_factory) -> Path:
    """A wheel for 6.2 that passes its check."""
    dist = tmp_path_factory.mktemp("kernel")
    done = invoke("build", "--arch", "6.2", "--project", PROJECTS / "kernel", "--dist", dist)
    return Path(done.good().stdout.strip())


@pytest.fixture
def large_folder(tmp_path) -> Iterator[Path]:
    """A folder for gigabytes, which pytest would keep for the next three runs."""
    folder = tmp_path / "large"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    """Two devices, which the tests of a module share."""
    with running_fleet(2) as running:
        yield running


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    """A folder for small images that the test fleet runs."""
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def old(images) -> Image:
    """What the devices of a rollout run before it."""
    return make_image(images, "1.0")


@pytest.fixture(scope="module")
def new(images) -> Image:
    """What a rollout brings."""
    return make_image(images, "1.1")
