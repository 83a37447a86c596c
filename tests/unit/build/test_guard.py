import ctypes
import importlib.util
import json
import platform
import sys

import pytest
from jetship import proc
from jetship.build.finish import GUARD, GUARD_NAME

MINE = "cp{}{}".format(*sys.version_info[:2])
RECORD = {
    "target": "sm62-debian-12",
    "platform_kind": "jetpack",
    "machine": platform.machine(),
    "torch": {"version": "2.7.1", "cuda": None, "cxx11_abi": True},
    "cuda": {"version": "11.8", "code": [{"arch": "6.2", "sass": True, "ptx": False}]},
    "python": {"interpreter": MINE, "abi": MINE},
}
TORCH = {
    "torch/__init__.py": "from torch import _C, version\n__version__ = '2.7.1+cpu'\n",
    "torch/version.py": "cuda = None\n",
    "torch/_C.py": "_GLIBCXX_USE_CXX11_ABI = True\n",
}
PACKAGE = {"ops/__init__.py": "from . import _jetship_guard\n_jetship_guard.check()\nprint('in')\n"}


@pytest.fixture
def install(tmp_path, write):
    """Install a guarded package and a torch beside it, and return the folder."""

    def install(record: dict | str, torch: dict[str, str] | None = None, folder: str = "site"):
        text = record if isinstance(record, str) else json.dumps(record)
        info = "ops-1.0.dist-info"
        return write(tmp_path / folder, {
            **PACKAGE, **(TORCH if torch is None else torch),
            f"ops/{GUARD_NAME}": GUARD.read_text(encoding="utf-8"),
            f"{info}/jetship.json": text,
            f"{info}/RECORD": f"ops/__init__.py,sha256=x,1\nops/{GUARD_NAME},sha256=x,1\n",
        })  # fmt: skip

    return install


@pytest.fixture
def load(tmp_path):
    """Import the package in a process of its own."""

    def load(site, **variables: str) -> proc.Finished:
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
        return proc.run([sys.executable, "-c", "import ops"], env=env | variables)

    return load


def sentence(done: proc.Finished) -> str:
    assert done.status == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    return last.removeprefix("ImportError: ")


def test_a_wheel_on_the_machine_that_it_was_built_for_is_imported(install, load):
    done = load(install(RECORD))
    assert (done.stdout, done.stderr) == ("in\n", "")


@pytest.mark.parametrize(
    ("change", "torch", "difference"),
    [
        ({"machine": "riscv64"}, {}, f"this machine is {platform.machine()}, not riscv64"),
        ({"python": {"interpreter": "cp36", "abi": "cp36m"}}, {},
         f"this Python is {MINE}, not cp36"),
        ({}, {"torch/__init__.py": "__version__ = '2.6.0+cu126'\n"},
         "torch here is 2.6.0+cu126, not 2.7.1"),
        ({}, {"torch/version.py": "cuda = '12.6'\n"},
         "torch here is built for CUDA 12.6, not CPU only"),
        ({"torch": {"version": "2.7.1", "cuda": "11.8", "cxx11_abi": True}}, {},
         "torch here is built for CPU only, not CUDA 11.8"),
        ({}, {"torch/_C.py": "_GLIBCXX_USE_CXX11_ABI = False\n"},
         "torch here has the pre-C++11 C++ ABI, not the C++11 one"),
        ({"torch": {"version": "2.7.1", "cuda": None, "cxx11_abi": False}}, {},
         "torch here has the C++11 C++ ABI, not the pre-C++11 one"),
        ({}, {"torch/__init__.py": "import no_such_module\n"},
         "torch cannot be imported here (No module named 'no_such_module')"),
        ({}, {"torch/__init__.py": "raise OSError('libtorch_cpu.so: no such file')\n"},
         "torch cannot be imported here (libtorch_cpu.so: no such file)"),
    ],
)  # fmt: skip
def test_a_difference_is_one_sentence(install, load, change, torch, difference):
    done = load(install(RECORD | change, TORCH | torch))
    assert done.stdout == ""
    assert sentence(done) == (
        f"ops was built for sm62-debian-12, and {difference}. Install the wheel for this machine, "
        "or set JETSHIP_GUARD=off to try all the same."
    )


def test_a_missing_torch_is_said_to_be_missing(install, load):
    done = load(install(RECORD, {}))
    assert "torch cannot be imported here (No module named 'torch')" in sentence(done)


def test_the_first_difference_is_the_one_that_is_told(install, load):
    other = RECORD | {"machine": "riscv64", "python": {"interpreter": "cp36", "abi": "cp36m"}}
    assert "riscv64" in sentence(load(install(other, {})))


@pytest.mark.parametrize(
    "python", [{"interpreter": "cp36", "abi": "abi3"}, {"interpreter": "py3", "abi": "none"}]
)
def test_abi3_and_plain_wheels_fit_any_python(install, load, python):
    assert load(install(RECORD | {"python": python})).ok


def test_the_comparison_can_be_switched_off(install, load):
    done = load(install(RECORD | {"machine": "riscv64"}), JETSHIP_GUARD="off")
    assert done.stdout == "in\n"
    assert "riscv64" in sentence(load(install(RECORD | {"machine": "riscv64"}), JETSHIP_GUARD="on"))


@pytest.mark.parametrize("lost", ["ops-1.0.dist-info/jetship.json", "ops-1.0.dist-info/RECORD"])
def test_a_damaged_installation_is_told(install, load, lost):
    site = install(RECORD)
    (site / lost).unlink()
    said = sentence(load(site))
    assert said.startswith("the pin record of ops (jetship.json in its .dist-info)")
    assert "install the wheel again" in said


def test_a_damaged_record_is_told(install, load):
    said = sentence(load(install("{")))
    assert "the pin record of ops" in said
    assert "install the wheel again" in said


def test_the_record_of_a_neighbour_is_not_mistaken_for_its_own(install, load, write):
    site = install(RECORD)
    foreign = json.dumps(RECORD | {"machine": "riscv64"})
    for name in "abcdefghijklmnopqrstuvwxyz":  # in which order they are found is not said
        files = {"jetship.json": foreign, "RECORD": f"ops_more/{GUARD_NAME},sha256=x,1\n"}
        write(site / f"{name}-1.0.dist-info", files)
    write(site / "without-record.dist-info", {"jetship.json": "{}"})
    done = load(site)
    assert done.stdout == "in\n", done.stderr


def test_a_folder_with_brackets_in_its_name_is_no_pattern(install, load):
    done = load(install(RECORD, folder="site [1]"))
    assert done.stdout == "in\n", done.stderr


def test_a_machine_without_a_driver_is_not_asked_for_a_gpu(install, load):
    other = RECORD | {"cuda": {"version": "11.8", "code": []}}
    assert load(install(other)).ok


class FakeDriver:
    """The driver's library, with GPUs of the given compute capabilities."""

    def __init__(self, capabilities, *, init=0, attribute=0):
        self.capabilities, self.init, self.attribute = capabilities, init, attribute

    def cuInit(self, _flags):  # noqa: N802
        return self.init

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = len(self.capabilities)
        return 0

    def cuDeviceGetAttribute(self, value, attribute, device):  # noqa: N802
        value._obj.value = self.capabilities[device][{75: 0, 76: 1}[attribute]]
        return self.attribute


@pytest.fixture
def guard(install, monkeypatch):
    """The guard as a module of this process, with a driver to be chosen."""
    site = install(RECORD)
    spec = importlib.util.spec_from_file_location("ops._jetship_guard", site / "ops" / GUARD_NAME)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def with_driver(driver):
        def load(name):
            assert name == "libcuda.so.1"
            if driver is None:
                raise OSError(name)
            return driver

        monkeypatch.setattr(ctypes, "CDLL", load)
        return module

    return with_driver


def code(*entries: str, kind: str = "jetpack") -> dict:
    """Write device code as "6.2" (sass), "6.2+PTX" (both) or "PTX6.2" (PTX alone)."""
    return {"platform_kind": kind, "cuda": {"code": [
        {"arch": entry.strip("+PTX"), "sass": not entry.startswith("PTX"), "ptx": "PTX" in entry}
        for entry in entries
    ]}}  # fmt: skip


@pytest.mark.parametrize(
    ("entries", "gpus", "fits"),
    [
        (["6.2"], [(6, 2)], True),
        (["6.2"], [(7, 2)], False),
        (["6.2"], [(6, 1)], False),
        (["6.2+PTX"], [(7, 2)], True),
        (["7.2+PTX"], [(6, 2)], False),
        (["PTX6.2"], [(6, 2)], True),
        (["PTX8.7"], [(11, 0)], True),
        (["PTX11.0"], [(8, 7)], False),
        (["6.2", "8.7"], [(8, 7)], True),
        (["6.2"], [(8, 7), (6, 2)], True),
        ([], [(6, 2)], True),
        (["6.2"], [], True),
    ],
)
def test_device_code_fits_the_gpu_or_is_ptx_for_an_older_one(guard, entries, gpus, fits):
    module = guard(FakeDriver(gpus))
    assert (module._gpu(code(*entries)) is None) == fits


@pytest.mark.parametrize(
    ("entry", "gpu", "fits"),
    [
        ("8.0", (8, 0), True),
        ("8.0", (8, 9), True),
        ("8.6", (8, 0), False),
        ("8.9", (9, 0), False),
        ("PTX8.0", (9, 0), True),
    ],
)
def test_machine_code_of_a_server_runs_on_later_gpus_of_its_generation(guard, entry, gpu, fits):
    module = guard(FakeDriver([gpu]))
    assert (module._gpu(code(entry, kind="server")) is None) == fits
    tegra = module._gpu(code("8.6")), guard(FakeDriver([(8, 7)]))._gpu(code("8.6"))
    assert None not in tegra, "a Jetson runs nothing but its own"


def test_another_gpu_is_one_sentence(guard):
    module = guard(FakeDriver([(7, 2), (8, 7)]))
    assert module._gpu(code("5.3", "6.2")) == (
        "it has device code for 5.3, 6.2, and this machine's GPU is 7.2, 8.7"
    )
    assert module._gpu(code("PTX11.0")) == (
        "it has device code for 11.0+PTX, and this machine's GPU is 7.2, 8.7"
    )


@pytest.mark.parametrize(
    "driver",
    [None, FakeDriver([]), FakeDriver([(7, 2)], init=100), FakeDriver([(7, 2)], attribute=1)],
)
def test_without_a_working_driver_nothing_is_said_of_the_gpu(guard, driver):
    assert guard(driver)._gpu(code("6.2")) is None


def test_the_driver_is_asked_by_check(guard, monkeypatch):
    module = guard(FakeDriver([(7, 2)]))
    monkeypatch.setattr(module, "_torch", lambda _: None)
    with pytest.raises(ImportError, match=r"device code for 6\.2, and this machine's GPU is 7\.2"):
        module.check()
