"""What was written down of libraries that are not at hand."""

import re

import pytest
from jetship.check import mangled, symboltables
from jetship.check.symboltables import (
    cuda_release,
    is_left_out,
    known_runtimes,
    read_table,
    tables_of,
)
from jetship.datafiles import data_dir
from jetship.toolchain.sources import pinned_files

TABLES = sorted(data_dir("toolchains").glob("symbols/*/*.txt"))


@pytest.mark.parametrize("path", TABLES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_table_says_where_it_comes_from_and_is_sorted(path):
    lines = path.read_text().splitlines()
    head = [line for line in lines if line.startswith("#")]
    names = lines[len(head) :]
    library, _, packages = head[0].removeprefix("# exported by ").partition(" of ")
    assert library == path.name.removesuffix(".txt")
    digests = head[1].removeprefix("# sha256 ").split()
    assert len(digests) == len(packages.split())
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in digests)
    assert names == sorted(set(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_.$@]+", name) for name in names)
    assert path.stat().st_size < 1_000_000
    table = read_table(path)
    if table.partial and table.release.startswith("torch-"):
        assert not [name for name in table.exports if is_left_out(name)]
    abis = {mangled.string_abi(name) for name in table.exports if mangled.in_torch(name)} - {None}
    assert set(table.string_abis) == abis


def test_a_table_is_a_library_with_versions_and_needs():
    (path,) = [path for path in tables_of("cuda-11.8") if path.name.startswith("libcublas.so")]
    table = read_table(path)
    assert (table.name, table.release) == ("libcublas.so.11", "cuda-11.8")
    assert table.needed == ("libcublasLt.so.11",)
    assert table.version_definitions == ("libcublas.so.11",)
    assert table.exports["cublasSgemm_v2"] == ("libcublas.so.11", "")
    assert table.elf("aarch64").soname == "libcublas.so.11"


# What nearly every extension module takes from Python.
PYTHONS = {"PyModule_Create2", "PyModuleDef_Init", "PyArg_ParseTuple", "_Py_NoneStruct",
           "_Py_Dealloc", "PyType_Ready", "PyErr_SetString", "PyExc_TypeError"}  # fmt: skip


@pytest.mark.parametrize("version", ["3.10", "3.12"])
def test_what_modules_take_is_in_the_tables_of_python(version):
    (table,) = [read_table(path) for path in tables_of(f"python-{version}")]
    assert table.name == f"python{version}"
    assert PYTHONS - {*table.exports} == set()
    assert table.partial, "what it lacks may be there all the same"
    assert [name for name in table.exports if "pyodide" in name.lower() or "Js" in name] == []
    assert table.needed == ("libc.so.6", "libm.so.6")


def test_tables_of_python_differ_by_release():
    old, new = (
        {*read_table(one).exports} for v in ("3.10", "3.12") for one in tables_of(f"python-{v}")
    )
    # Changes of the C API: see "What's new" of 3.12 and 3.11.
    assert "PyUnicode_AsUnicode" in old - new
    assert {"PyType_FromMetaclass", "_PyObject_VisitManagedDict"} <= new - old


# What extensions take from torch's CUDA half: streams, guards, the allocator, handles, generators.
TAKEN = [
    "_ZN3c104cuda20getCurrentCUDAStreamEa",
    "_ZN2at4cuda24getCurrentCUDABlasHandleEv",
    "_ZN2at4cuda26getCurrentCUDASparseHandleEv",
    "_ZN2at4cuda26getCurrentDevicePropertiesEv",
    "_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa",
]


@pytest.mark.parametrize("release", ["1.10.0", "2.1.0", "2.4.1", "2.5.1"])
def test_what_extensions_take_is_in_the_tables_of_torch(release):
    known = {name for path in tables_of(f"torch-{release}") for name in read_table(path).exports}
    stems = [re.sub(r"E[av]+$", "E", name) for name in TAKEN]
    assert [stem for stem in stems if not any(name.startswith(stem) for name in known)] == []


def test_the_older_release_speaks_for_a_newer_one_of_the_same_major(catalog):
    found = {platform.name: cuda_release(platform) for platform in catalog.platforms}
    assert found["jetpack-4.2"] is None, "nothing was written down of CUDA 10.0"
    assert found["jetpack-4.6"] == "10.2"
    assert found["jetpack-5.1"] == "11.2"
    assert found["jetpack-6.0"] == "12.1"
    assert found["jetpack-6.2"] == "12.4"
    assert found["jetpack-7.2"] == "13.0"


def test_the_runtime_of_every_shipped_cuda_part_was_written_down(catalog):
    known = known_runtimes()
    parts = {part.name: part for one in catalog.platforms for part in one.toolchain.cuda}
    assert parts
    assert [name for name, part in parts.items() if not pinned_files(part) & known] == []


def test_names_of_kernels_are_left_out():
    assert is_left_out("_ZN2at6native10gpu_kernelIZZZNS0_12_GLOBAL__N_1")
    assert is_left_out("puts")
    assert not is_left_out("_ZN2at4cuda24getCurrentCUDABlasHandleEv")
    assert symboltables.is_of_kernels("_ZN2at6native13reduce_kernelILi512E")
