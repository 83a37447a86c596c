"""The walk along #include lines, on trees of a few files."""

from types import SimpleNamespace

import pytest
from jetship.build.includes import IncludeWalk, Missing, needed_math
from jetship.build.project import Project

TORCH = {
    "torch/extension.h": "#pragma once\n#include <ATen/ATen.h>\n",
    "torch/csrc/api/include/torch/all.h": "#include <torch/nn.h>\n",
    "torch/csrc/api/include/torch/nn.h": "",
    "ATen/ATen.h": "#include <ATen/core/Tensor.h>\n#include <c10/x.h>\n",
    "ATen/core/Tensor.h": "#include <ATen/ATen.h>  // and back\n",
    "ATen/cuda/CUDAContext.h": "#include <ATen/ATen.h>\n#include <ATen/cuda/Light.h>\n",
    "ATen/cuda/Light.h": "#include <cuda_runtime_api.h>\n#include <cusparse.h>\n"
    "#include <cublas_v2.h>\n#ifdef SOLVER\n  #  include <cusolverDn.h>\n#endif\n",
    "c10/x.h": "",
}


@pytest.fixture
def walk(tmp_path, write):
    """Walk a project's files over torch's and CUDA's folders of headers."""

    def walk(files, torch=TORCH, cuda=None):
        include = write(tmp_path / "include", torch)
        home = write(tmp_path / "cuda", cuda or {"cuda_runtime_api.h": ""})
        root = write(tmp_path / "project", files)
        found = sorted(path for path in root.rglob("*") if path.is_file())
        folders = (include, include / "torch/csrc/api/include", home)
        return list(IncludeWalk(found, root, folders).missing())

    return walk


def test_a_header_that_is_nowhere_is_told_with_the_way_to_it(walk):
    found = walk({"src/ops.cu": "#include <ATen/cuda/CUDAContext.h>\n"})
    way = ("src/ops.cu", "ATen/cuda/CUDAContext.h", "ATen/cuda/Light.h")
    names = ("cusparse.h", "cublas_v2.h", "cusolverDn.h")
    assert found == [Missing(name, way) for name in names]
    assert str(found[1]) == "src/ops.cu includes cublas_v2.h through ATen/cuda/CUDAContext.h"


def test_one_that_is_included_at_once_has_nothing_between(walk):
    (found,) = walk({"ops.cpp": '#include "cublas_v2.h"\n'})
    assert str(found) == "ops.cpp includes cublas_v2.h"


@pytest.mark.parametrize(
    "line",
    [
        "#include <torch/extension.h>",
        "#include <torch/all.h>",
        "// #include <cublas_v2.h>",
        "#define X <cublas_v2.h>",
        'const char* x = "#include <cublas_v2.h>";',
        "#include MACRO",
        "",
    ],
)
def test_what_does_not_lead_there_needs_nothing(walk, line):
    assert walk({"ops.cu": f"{line}\n"}) == []


@pytest.mark.parametrize(
    "line", ["#include<cublas_v2.h>", "  #  include <cublas_v2.h>", '#include\t"cublas_v2.h" // x']
)
def test_the_line_may_be_written_in_many_ways(walk, line):
    assert [one.header for one in walk({"ops.cu": f"int x;\r\n{line}\r\n"})] == ["cublas_v2.h"]


@pytest.mark.parametrize("suffix", ["c", "cc", "cpp", "cxx", "cu", "CU"])
def test_every_kind_of_source_is_looked_into(walk, suffix):
    assert walk({f"ops.{suffix}": "#include <cublas_v2.h>\n"})


def test_a_header_that_no_source_includes_does_not_count(walk):
    assert walk({"ops.cu": "", "unused.h": "#include <cublas_v2.h>\n"}) == []


@pytest.mark.parametrize(
    ("source", "header", "line"),
    [
        ("src/ops.cu", "src/deep/own.h", '"deep/own.h"'),
        ("src/ops.cu", "include/pkg/own.h", "<pkg/own.h>"),
        ("src/ops.cu", "include/pkg/own.cuh", '"../include/pkg/own.cuh"'),
        ("src/ops.cu", "third_party/include/own.h", "<own.h>"),
    ],
)
def test_headers_of_the_project_are_followed(walk, source, header, line):
    (found,) = walk({source: f"#include {line}\n", header: "#include <cublas_v2.h>\n"})
    assert str(found) == f"{header} includes cublas_v2.h"


def test_a_header_of_torch_is_not_taken_for_one_of_the_project(walk):
    files = {"ops.cu": "#include <c10/x.h>\n", "copy/c10/x.h": "#include <cublas_v2.h>\n"}
    assert walk(files) == []


def test_part_of_a_name_is_another_header(walk):
    files = {"ops.cu": "#include <own.h>\n", "my-own.h": "#include <cublas_v2.h>\n"}
    assert [one.header for one in walk(files)] == ["own.h"]


def test_headers_that_include_each_other_end(walk):
    files = {"a.cu": '#include "a.h"\n', "a.h": '#include "b.h"\n', "b.h": '#include "a.h"\n'}
    assert walk(files) == []


def test_a_file_of_another_encoding_is_read(tmp_path):
    source = tmp_path / "ops.cu"
    source.write_bytes(b"// \xff\xfe caf\xe9\n#include <cublas_v2.h>\n")
    assert list(IncludeWalk([source], tmp_path, ()).missing())


@pytest.fixture
def project(tmp_path, write):
    def project(text, **more):
        return Project(write(tmp_path / "project", {"ops.cu": text, **more}), None)

    return project


@pytest.fixture
def needed(tmp_path, write, catalog):
    """Which parts for CUDA 11.8 a project needs, by name."""
    torch = write(tmp_path / "torch/include", TORCH).parent
    home = write(tmp_path / "cuda", {"include/cuda_runtime_api.h": ""})
    toolchain = SimpleNamespace(torch=torch, cuda_home=home)
    offered = catalog.platform("debian-12").toolchain.cuda_math

    def needed(one):
        return {part.name: str(why) for part, why in needed_math(one, toolchain, offered).items()}

    return needed


@pytest.mark.parametrize(
    ("header", "part"),
    [
        ("cublas_v2.h", "cuda-math-11.8"),
        ("cublasLt.h", "cuda-math-11.8"),
        ("cusparse.h", "cuda-math-11.8"),
        ("cusolver_common.h", "cuda-math-11.8"),
        ("curand_kernel.h", "cuda-curand-11.8"),
        ("cufftXt.h", "cuda-cufft-11.8"),
    ],
)
def test_a_part_is_needed_for_its_headers_alone(project, needed, header, part):
    why = f"ops.cu includes {header}"
    assert needed(project(f"#include <{header}>\n")) == {part: why}


def test_other_headers_that_are_nowhere_need_no_part(project, needed):
    assert needed(project("#include <vector>\n#include <NvInfer.h>\n#include <cudnn.h>\n")) == {}


def test_what_a_build_does_not_see_is_not_looked_at(project, needed):
    more = {"build/old.cu": "#include <cublas_v2.h>\n", ".git/x.cu": "#include <cufft.h>\n"}
    assert needed(project("", **more)) == {}


def test_a_link_that_leads_nowhere_is_no_source(project, needed):
    made = project("#include <cufft.h>\n")
    (made.folder / ".#ops.cu").symlink_to("somebody@a-machine")  # as editors lock their files
    assert list(needed(made)) == ["cuda-cufft-11.8"]


def test_a_project_named_by_a_relative_path(project, needed, monkeypatch):
    made = project('#include "own.h"\n', **{"own.h": "#include <cublas_v2.h>\n"})
    monkeypatch.chdir(made.folder)
    here = Project(made.folder.relative_to(made.folder), None)
    assert needed(here) == {"cuda-math-11.8": "own.h includes cublas_v2.h"}
