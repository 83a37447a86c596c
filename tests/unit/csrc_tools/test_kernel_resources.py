import argparse
from pathlib import Path

import pytest
from kernel_resources import Resources, page, read_ptxas, spilling
from kernels_by_arch import (
    Code,
    CompileError,
    Toolkit,
    add_arguments,
    short_name,
    toolkits_of,
)

# Of nvcc 11.8 for 6.2 (`_Z4scanPf` calls a function), and of nvcc 13.0 for 9.0.
OLD = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4scanPf' for 'sm_62'
ptxas info    : Function properties for _Z4scanPf
    128 bytes stack frame, 196 bytes spill stores, 244 bytes spill loads
ptxas info    : Function properties for _Z6calledf
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 48 registers, 10304 bytes smem, 376 bytes cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function '_Z4copyPf' for 'sm_62'
ptxas info    : Function properties for _Z4copyPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 6 registers, 328 bytes cmem[0]
"""
NEW = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z3sumPf' for 'sm_90'
ptxas info    : Function properties for _Z3sumPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 11.681 ms
"""


def taken(**changes) -> Resources:
    plain = Resources("a.cu", "scan", "Float16", "6.2", "11.8", 30, 0, 0, 0, 0)
    return plain._replace(**changes)


def test_what_old_and_new_ptxas_say_is_read():
    assert read_ptxas(OLD) == {
        "_Z4scanPf": {
            "stack": 128, "spill_stores": 196, "spill_loads": 244, "registers": 48, "shared": 10304
        },
        "_Z4copyPf": {
            "stack": 0, "spill_stores": 0, "spill_loads": 0, "registers": 6, "shared": 0
        },
    }  # fmt: skip
    assert read_ptxas(NEW)["_Z3sumPf"]["shared"] == 1024


def test_a_kernel_of_which_something_is_not_said_is_an_error():
    said = OLD.replace("Used 6 registers", "Uses registers")
    with pytest.raises(ValueError, match="did not say what _Z4copyPf takes"):
        read_ptxas(said)


@pytest.mark.parametrize(
    ("line", "is_warning"),
    [
        ('a.cu(3): warning #177-D: variable "n" was declared but never referenced', True),
        ("ptxas warning : Value of threads per SM for entry scan is out of range", True),
        ("nvcc warning : The 'sm_53' architecture is deprecated", True),
        ("ptxas info    : (C7510) Potential Performance Loss: setmaxnreg ignored", False),
        ("    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads", False),
    ],
)
def test_what_was_not_asked_for_is_a_warning(line, is_warning):
    code = Code("a.cu", "6.2", "11.8", Path(), f"{OLD}{line}\n{NEW}")
    assert code.warnings == ([line] if is_warning else [])


@pytest.mark.parametrize(
    ("demangled", "kernel", "arguments"),
    [
        ("scan(float*)", "scan", ""),
        (
            "void (anonymous namespace)::pack<a::Half, (anonymous namespace)::Of<a::Erf> >(long)",
            "pack",
            "Half, Of<Erf>",
        ),
        (
            "void _GLOBAL__N__1_7_gelu_cu_c::forward<a::Float32, 4, true>(_GLOBAL__N__1::Problem)",
            "forward",
            "Float32, 4, true",
        ),
        ("void a::forward<(int)8, (bool)1>(long)", "forward", "8, 1"),
    ],
)
def test_a_name_is_shortened(demangled, kernel, arguments):
    assert short_name(demangled) == (kernel, arguments)


def test_of_several_instances_the_one_that_takes_most_is_shown():
    rows = [
        taken(arguments="Float32", registers=40),
        taken(shared=64),
        taken(arch="9.0", cuda="13.0", registers=50),
        taken(arch="9.0", cuda="13.0", arguments="Float32", registers=48),
        taken(source="b.cu", kernel="only_here", registers=8),
    ]
    text = page(rows)
    assert "| kernel | instances | 6.2 (11.8) | 9.0 (13.0) |" in text
    assert "| a.cu `scan` | 2 | 40 | 50 |" in text
    assert "| a.cu `scan` | 2 | 64 | 0 |" in text
    assert "| b.cu `only_here` | 1 | 8 |  |" in text
    assert "None: no stack frame and no spill in 3 instances on any GPU." in text


def test_every_instance_that_spills_is_named():
    rows = [taken(), taken(stack=16), taken(spill_stores=4, spill_loads=8, arguments="")]
    assert spilling(rows) == rows[1:]
    text = page(rows)
    assert "| a.cu `scan<Float16>` | 6.2 (11.8) | 16 | 0 | 0 |" in text
    assert "| a.cu `scan` | 6.2 (11.8) | 0 | 4 | 8 |" in text


@pytest.mark.parametrize("words", ["/usr/bin/nvcc", "/usr/bin/nvcc=", "/usr/bin/nvcc=sm_62"])
def test_an_nvcc_without_archs_is_told(words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    with pytest.raises(CompileError, match="write PATH=ARCHS"):
        toolkits_of(parser.parse_args(["--nvcc", words]))


@pytest.mark.parametrize(
    ("version", "standard"), [("10.2", "c++14"), ("11.8", "c++14"), ("13.0", "c++17")]
)
def test_the_standard_is_the_oldest_that_the_toolkits_headers_take(version, standard):
    assert Toolkit(Path(), version, None, ()).standard == standard
