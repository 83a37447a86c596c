"""An extension whose headers include those of CUDA's math libraries, which are fetched for it.

The first run of each CUDA release downloads some 700 MB.
"""

from pathlib import Path

import pytest
from independent import Opened, device_code, needed_libraries
from jetship.build.includes import needed_math
from jetship.build.project import open_project
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve_id
from jetship.toolchain.prepare import plan, prepare
from product import PROJECTS, ROOT, copy_of, invoke, wheels_in

CATALOG = Catalog.load()
CONTEXT = PROJECTS / "context"
# As `invoke targets` has them: a toolkit of each CUDA release, and one that has all headers.
TARGETS = {
    "sm62-debian-12": "11.8",
    "sm72-jetpack-5.1": "",
    "sm87-jetpack-5.1": "11.8",
    "sm87-jetpack-6.2": "12.4",
    "sm87-debian-13": "13.0",
    "sm80-x86-64-cuda-12.4": "12.4",
}


@pytest.mark.parametrize("project", [ROOT / "csrc", PROJECTS / "kernel", PROJECTS / "plain"])
def test_projects_that_need_no_math_library_fetch_none(toolchain, project):
    offered = plan(resolve_id(CATALOG, "sm62-debian-12")).math
    assert offered
    assert needed_math(open_project(project), toolchain, offered) == {}


def test_the_way_through_torchs_headers_is_found(toolchain):
    offered = plan(resolve_id(CATALOG, "sm62-debian-12")).math
    ((part, missing),) = needed_math(open_project(CONTEXT), toolchain, offered).items()
    assert part.name == "cuda-math-11.8"
    assert missing.way[:2] == ("include/context/stream.h", "ATen/cuda/CUDAContext.h")


@pytest.mark.long
@pytest.mark.parametrize(("target", "release"), TARGETS.items(), ids=TARGETS)
def test_a_project_with_the_cuda_context_is_built_and_passes(target, release, tmp_path):
    done = invoke("build", "--target", target, "--project", CONTEXT, "--dist", tmp_path, "--json")
    (row,) = done.good().json["wheels"]
    assert (row["target"], row["outcome"]) == (target, "pass")
    wheel = Opened(Path(row["wheel"]))
    library = tmp_path / "library.so"
    library.write_bytes(wheel.library)
    home = prepare(resolve_id(CATALOG, target), Store(default_root())).cuda_home
    number = target.partition("-")[0].removeprefix("sm")
    assert device_code(home / "bin/cuobjdump", library) == ({number}, set())
    # Only the headers are used: nothing asks for libcublas.
    assert not [name for name in needed_libraries(wheel.library) if "cublas" in name]
    assert (home / "include/cublas_v2.h").exists() == (not release), "the plain toolkit"


@pytest.mark.long
def test_a_math_library_can_be_linked_and_proves_nothing(tmp_path):
    project = copy_of("context", tmp_path)
    source = project / "src/scale.cu"
    source.write_text(
        source.read_text()
        + '\nextern "C" const char* why(int status) {\n'
        + "  return cusparseGetErrorString(static_cast<cusparseStatus_t>(status));\n}\n"
    )
    setup = project / "setup.py"
    setup.write_text(
        setup.read_text().replace("include_dirs", 'libraries=["cusparse"], include_dirs')
    )
    dist = tmp_path / "dist"
    done = invoke("build", "--arch", "6.2", "--project", project, "--dist", dist)
    assert done.status == 7
    assert "libcusparse.so.11" in done.stdout + done.stderr
    (wheel,) = wheels_in(dist)
    assert wheel.parent.name == "rejected"
    assert "libcusparse.so.11" in needed_libraries(Opened(wheel).library)


@pytest.mark.long
def test_an_exported_toolchain_may_have_all_of_them(tmp_path):
    folder = tmp_path / "tx2"
    invoke("toolchain", "--arch", "6.2", "--cuda-math", "--export", folder).good()
    for header in ("cublas_v2.h", "cusolverDn.h", "curand_kernel.h", "cufft.h", "cuda_runtime.h"):
        assert (folder / "cuda/include" / header).is_file()
    assert (folder / "stubs/libcublas.so").is_file()
