"""The target's numpy. The index's part is played; the wheel and the Python that asks are real."""

import os
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from jetship import proc
from jetship.build import targetside
from jetship.build.environment import compose, create
from jetship.build.targetside import STANDIN_NUMPY, with_target_numpy
from jetship.errors import DownloadError
from jetship.store import sha256_of
from jetship.toolchain.lock import Locked


@pytest.fixture
def cross(toolchain, target, tmp_path):
    return create(toolchain, target, tmp_path / "cross")


@pytest.fixture
def index(monkeypatch, store, tmp_path):
    """Play the index: has one wheel of numpy; what was asked for is in `index.asked`."""
    asked = []

    def lock_source(store, source):
        asked.append(source)
        path = tmp_path / "numpy-1.24.0-cp311-cp311-manylinux_2_17_aarch64.whl"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("numpy/__init__.py", "raise AssertionError('the target numpy ran')")
            archive.writestr(f"numpy/{index.core}/include/numpy/arrayobject.h", "")
        digest = sha256_of(path)
        name = path.name
        store.add(path, digest)
        return (Locked(name="numpy", version="1.24.0", file=name, size=1, sha256=digest),)

    class index:  # noqa: N801
        core = "core"

    index.asked = asked
    monkeypatch.setattr(targetside.pypi, "lock_source", lock_source)
    return index


def test_a_project_without_numpy_gets_nothing_more(cross, debian_12, store, index):
    wanted = ["setuptools", "cython", "not a requirement!", "numpydoc"]
    assert with_target_numpy(cross, wanted, debian_12, store) is cross
    assert index.asked == []


@pytest.mark.parametrize(
    ("wanted", "asked"),
    [
        (["numpy"], "numpy"),
        (["NumPy>=1.20", "setuptools"], "numpy>=1.20"),
        (["numpy<2", "numpy>=1.20"], "numpy<2,>=1.20"),
        (["numpy>=1.20", "numpy"], "numpy>=1.20"),
        (["numpy==1.19; python_version < '3.9'", "numpy==1.24; python_version >= '3.9'"],
         "numpy==1.24"),
        (["numpy==1.24; platform_machine == 'aarch64'", "numpy==2.0; platform_machine == 'x86_64'"],
         "numpy==1.24"),
    ],
)  # fmt: skip
def test_what_the_target_asks_for_is_fetched_for_its_machine_and_python(  # noqa: PLR0917
    cross, debian_12, store, index, wanted, asked
):
    made = with_target_numpy(cross, wanted, debian_12, store)
    (source,) = index.asked
    assert source.requirements == (asked,)
    assert (source.machine, source.python, source.abi) == ("aarch64", "3.11", "cp311")
    with_target_numpy(cross, wanted, debian_12, store)
    assert len(index.asked) == 1, "the second build finds it in the cache"
    folder = Path(made.variables["JETSHIP_NUMPY"])
    assert (folder / "numpy/core/include/numpy/arrayobject.h").is_file()
    path = made.variables["PYTHONPATH"].split(os.pathsep)
    assert path == [str(STANDIN_NUMPY), *cross.variables["PYTHONPATH"].split(os.pathsep),
                    str(folder)]  # fmt: skip


def test_markers_that_do_not_hold_on_the_target_ask_for_nothing(cross, debian_12, store, index):
    wanted = ["numpy; python_version < '3.9'", "numpy; platform_machine == 'x86_64'"]
    assert with_target_numpy(cross, wanted, debian_12, store) is cross


def test_a_target_without_such_a_wheel_is_a_failed_download(cross, debian_12, store, monkeypatch):
    def lock_source(*_):
        raise DownloadError("no such wheel")

    monkeypatch.setattr(targetside.pypi, "lock_source", lock_source)
    with pytest.raises(DownloadError):
        with_target_numpy(cross, ["numpy==0.1"], debian_12, store)
    assert list((store.root / "trees").iterdir()) == []


@pytest.mark.parametrize("core", ["core", "_core"])
def test_a_setup_py_computes_with_its_own_numpy_and_compiles_with_the_targets(  # noqa: PLR0917
    cross, debian_12, store, index, tmp_path, core
):
    index.core = core
    made = with_target_numpy(cross, ["numpy"], debian_12, store)
    env = compose({"PATH": os.defpath}, made, {})
    env = {key: value for key, value in env.items() if not key.startswith("_PYTHON")}
    venv = tmp_path / "venv"
    done = proc.run([sys.executable, "-m", "venv", "--without-pip", venv])
    assert done.ok, done.stderr
    script = (
        "import numpy, numpy.linalg as l, sys; print(numpy.__version__, l.OWN, numpy.get_include())"
    )

    def ask() -> proc.Finished:
        return proc.run([venv / "bin/python", "-c", script], env=env)

    assert "numpy is not among the project's build requirements" in ask().stderr
    site = venv / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    own = site / "numpy"
    own.mkdir()
    (own / "__init__.py").write_text("__version__ = '9.9'\ndef get_include():\n    return 'own'\n")
    (own / "linalg.py").write_text("OWN = True\n")
    folder = made.variables["JETSHIP_NUMPY"]
    assert ask().stdout == f"9.9 True {folder}/numpy/{core}/include\n", ask().stderr
