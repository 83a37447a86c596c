"""Public projects, unmodified: crossed, checked, run in an arm64 image, and compared with native.

What each computes on fixed inputs in its container is what the same release computes that pip
builds here, for this machine, against its own torch. Emulated CPU and native CPU round
differently, and so do releases of torch, so numbers are compared and not bytes.
"""

import contextlib
import json
import math
import os
import shutil
import sys
import sysconfig
import textwrap
import zipfile
from dataclasses import dataclass
from pathlib import Path

import docker.errors
import pytest
from engine import running_engine
from jetship import proc
from jetship.image.base import base_image, packages_folder
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target, parse_target_id
from jetship.toolchain.prepare import prepare_base
from product import Ended, invoke

pytestmark = pytest.mark.long

NATIVE_TORCH = "torch==2.13.0"
CCACHE = Path(sysconfig.get_path("scripts"), "ccache")
ALIKE = {"rel_tol": 1e-4, "abs_tol": 1e-5}


@dataclass(frozen=True)
class Public:
    """A release on the package index.

    `program` leaves a list of numbers in `result`; `needs` is what it imports beside torch,
    `env` what a deploy.yaml has to say for its build, and `native` what its build against
    NATIVE_TORCH wants beside.
    """

    requirement: str
    program: str
    needs: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    native: tuple[tuple[str, str], ...] = ()

    @property
    def command(self) -> list[str]:
        """The smoke command: prints one JSON object."""
        head = "import json, torch\nresult = []\n"
        tail = "print(json.dumps({'ok': True, 'result': result}))\n"
        return ["python3", "-W", "ignore", "-c", head + textwrap.dedent(self.program) + tail]


TORCH_SCATTER = Public(
    "torch-scatter==2.1.2",
    """
    import torch_scatter
    values = torch.sin(torch.arange(60.0)).reshape(6, 10)
    index = torch.tensor([0, 2, 1, 2, 0, 1]).view(-1, 1).expand_as(values).contiguous()
    pointers = torch.tensor([0, 1, 4, 6])
    for how in ("sum", "mean", "min", "max"):
        result += torch_scatter.scatter(values, index, dim=0, reduce=how).flatten().tolist()
        result += torch_scatter.segment_csr(values, pointers, reduce=how).flatten().tolist()
    """,
)
TORCH_POINTS_KERNELS = Public(
    "torch-points-kernels==0.7.0",
    """
    import torch_points_kernels as points
    known = torch.sin(torch.arange(90.0)).reshape(1, 30, 3)
    asked = torch.cos(torch.arange(24.0)).reshape(1, 8, 3)
    distance, index = points.three_nn(asked, known)
    weight = distance / distance.sum(dim=-1, keepdim=True)
    features = torch.arange(60.0).reshape(1, 2, 30)
    result += index.flatten().tolist() + distance.flatten().tolist()
    result += points.three_interpolate(features, index, weight).flatten().tolist()
    """,
    needs=("numba", "scikit-learn"),
    # It counts on torch's headers for <memory>, and those of NATIVE_TORCH no longer bring it.
    native=(("CXXFLAGS", "-include memory"),),
)
CHAMFERDIST = Public(
    "chamferdist==1.0.3",
    """
    from chamferdist import ChamferDistance
    one = torch.sin(torch.arange(60.0)).reshape(2, 10, 3).requires_grad_()
    other = torch.cos(torch.arange(48.0)).reshape(2, 8, 3)
    distance = ChamferDistance()(one, other, bidirectional=True)
    distance.backward()
    result += [distance.item(), *one.grad.flatten().tolist()]
    """,
)
_FAST_TRANSFORMERS = """
    from fast_transformers.causal_product import causal_dot_product
    from fast_transformers.hashing import compute_hashes
    queries, keys, values = (
        torch.sin(torch.arange(240.0) * step).reshape(2, 3, 5, 8) for step in (1.0, 0.7, 0.3)
    )
    result += causal_dot_product(queries, keys, values).flatten().tolist()
    points = queries.reshape(30, 8).contiguous()
    planes = torch.cos(torch.arange(45.0)).reshape(5, 9)
    result += compute_hashes(points, planes).flatten().tolist()
    """
FAST_TRANSFORMERS = Public("pytorch-fast-transformers==0.4.0", _FAST_TRANSFORMERS)
# Its setup.py makes PTX for 5.0 and nothing else; the check's own advice adds the target's code.
FAST_TRANSFORMERS_AS_ADVISED = Public(
    FAST_TRANSFORMERS.requirement,
    _FAST_TRANSFORMERS,
    env=(("NVCC_APPEND_FLAGS", "-gencode=arch=compute_62,code=sm_62"),),
)
CAUSAL_CONV1D = Public("causal-conv1d==1.7.0", "")

TARGETS = ("sm62-debian-12", "sm72-debian-11", "sm87-debian-13")
CASES = [
    (CHAMFERDIST, "sm62-debian-12"),
    (FAST_TRANSFORMERS_AS_ADVISED, "sm62-debian-12"),
    *((TORCH_POINTS_KERNELS, name) for name in TARGETS),
    *((TORCH_SCATTER, name) for name in TARGETS),
]


def target_of(name: str) -> Target:
    code, platform = parse_target_id(name)
    return Target(code, Catalog.load().platform(platform))


def run(*argv: str | Path, **changes: str) -> str:
    done = proc.run(argv, env={**os.environ, **changes})
    assert done.ok, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def engine():
    with running_engine() as client:
        yield client


@pytest.fixture(scope="module")
def native(tmp_path_factory):
    """Answer what a release computes that is built here for this machine, without CUDA."""
    folder = tmp_path_factory.mktemp("native")
    run(sys.executable, "-m", "venv", folder)
    python = folder / "bin/python"
    run(
        python,
        "-m",
        "pip",
        "install",
        "-q",
        NATIVE_TORCH,
        "numpy",
        "setuptools<81",
        "wheel",
        "ninja",
    )
    for compiler in ("gcc", "g++"):
        (folder / "bin" / compiler).symlink_to(CCACHE)  # that runs the one further on the PATH
    answers: dict[str, list[float]] = {}

    def answer(public: Public) -> list[float]:
        if public.requirement not in answers:
            if public.needs:
                run(python, "-m", "pip", "install", "-q", *public.needs)
            run(
                python, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps",
                "--no-binary=:all:", "--no-cache-dir", public.requirement,
                PATH=f"{folder}/bin{os.pathsep}{os.defpath}", MAX_JOBS="2", FORCE_CUDA="0",
                CC="gcc", CXX="g++", CCACHE_DIR=str(default_root() / "ccache-native"),
                **dict(public.native),
            )  # fmt: skip
            answers[public.requirement] = result_of(run(python, *public.command[1:]))
        return answers[public.requirement]

    yield answer
    shutil.rmtree(folder)


def result_of(printed: str) -> list[float]:
    answer = json.loads(printed.splitlines()[-1])
    assert answer["ok"] is True
    return answer["result"]


@pytest.fixture
def work(tmp_path):
    """Run a task for one case, in a folder of its own, with the deploy.yaml that a user writes."""

    def task(name: str, public: Public, target: str, *words: str | Path) -> Ended:
        deploy = tmp_path / "deploy.yaml"
        code, platform = parse_target_id(target)
        document = {
            "version": 1,
            "project": public.requirement,
            "targets": [{"arch": ",".join(map(str, code)), "platform": platform}],
            "image": {
                "repository": f"jetship-test/public-{os.getpid()}",
                "smoke": public.command,
            },
        }
        if public.env:
            document["build"] = {"env": dict(public.env)}
        deploy.write_text(json.dumps(document))  # JSON is YAML
        return invoke(name, *words, "--deploy", deploy, "--dist", tmp_path / "dist", "--json")

    return task


@pytest.fixture
def base_with(engine, tmp_path):
    """Return options of `image` that name a base with further Python packages, or none."""
    made = []

    def options(target: Target, packages: tuple[str, ...]) -> list[str]:
        if not packages:
            return []
        platform = target.platform
        content = prepare_base(platform, Store(default_root()))
        base = base_image(
            platform=platform,
            content=content,
            store=Store(default_root()),
            client=engine,
        )
        context = tmp_path / "context"
        unpack(packages, platform.python, context / "root", content / "site-packages")
        (context / "Dockerfile").write_text(
            f"FROM {base}\nCOPY root/ /{packages_folder(platform)}/\n"
        )
        tag = f"jetship-test/public-base-{platform.name}:{os.getpid()}"
        engine.images.build(path=str(context), tag=tag, platform="linux/arm64", rm=True)
        made.append(tag)
        return ["--base", tag]

    yield options
    for tag in made:
        engine.images.remove(tag, force=True)


def unpack(packages, python, into: Path, present: Path) -> None:
    """Unpack wheels for the target's Python, but nothing that the base image has already."""
    wheels = into.parent / "wheels"
    numpy = next(present.glob("numpy-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    tags = ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64")
    run(
        sys.executable, "-m", "pip", "download", "-q", "--only-binary=:all:", "-d", wheels,
        *(word for tag in tags for word in ("--platform", tag)),
        *("--python-version", python.version, "--implementation", "cp"),
        *packages, f"numpy=={numpy}",
    )  # fmt: skip
    for wheel in sorted(wheels.glob("*.whl")):
        if not wheel.name.startswith("numpy-"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(into)
    shutil.rmtree(wheels)


@pytest.fixture
def images(engine):
    """Names of images that go when the test ends."""
    made: list[str] = []
    yield made
    for name in made:
        with contextlib.suppress(docker.errors.DockerException):
            engine.images.remove(name, force=True)


@pytest.mark.parametrize(
    ("public", "name"), CASES, ids=[f"{public.requirement}-{name}" for public, name in CASES]
)
def test_a_public_release_computes_on_the_target_what_it_computes_here(  # noqa: PLR0917
    public, name, work, base_with, native, images
):
    (row,) = work("build", public, name).good().json["wheels"]
    assert row["outcome"] == "pass"
    (image,) = (
        work("image", public, name, *base_with(target_of(name), public.needs)).good().json["images"]
    )
    images.append(image["image"])
    answer = work("smoke", public, name).good().json[name]
    expected = native(public)
    assert answer["ok"] is True
    assert len(answer["result"]) == len(expected) > 10
    pairs = zip(answer["result"], expected, strict=True)
    assert all(math.isclose(got, wanted, **ALIKE) for got, wanted in pairs)


@pytest.mark.parametrize(
    ("public", "name", "flag"),
    [
        (FAST_TRANSFORMERS, "sm62-debian-12", "-gencode=arch=compute_62,code=sm_62"),
        (CAUSAL_CONV1D, "sm62-debian-12", "-gencode=arch=compute_62,code=sm_62"),
    ],
    ids=["fast-transformers", "causal-conv1d"],
)
def test_archs_that_a_project_sets_itself_are_told_from_the_targets(public, name, flag, work):
    done = work("build", public, name)
    assert done.status == 7, done.stderr
    (row,) = done.json["wheels"]
    (code, *_) = (
        f
        for f in row["report"]["findings"]
        if f["rule"] == "device-code" and f["outcome"] == "fail"
    )
    assert "no machine code for 6.2" in code["reason"]
    assert "the project sets its own archs" in code["fix"]
    assert f'NVCC_APPEND_FLAGS: "{flag}"' in code["fix"]


def test_a_project_that_names_the_targets_arch_among_others_passes(work):
    """causal-conv1d asks the network for a wheel first; what comes of it must be the target's."""
    (row,) = work("build", CAUSAL_CONV1D, "sm87-debian-13").good().json["wheels"]
    (code,) = (f for f in row["report"]["findings"] if f["rule"] == "device-code")
    assert (code["outcome"], "also for" in code["reason"]) == ("pass", True)
