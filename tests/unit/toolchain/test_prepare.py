"""Which parts a target's toolchain is made of, and how they are linked together."""

import os
from pathlib import Path

import pytest
from jetship import proc
from jetship.errors import ConfigError, ToolMissingError
from jetship.targets.model import Target
from jetship.targets.resolve import resolve
from jetship.toolchain import prepare as module
from jetship.toolchain import wrappers
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.prepare import is_prepared, plan, prepare, prepare_base
from jetship.toolchain.sources import PartTree

TRIPLET = "aarch64-linux-gnu"
GCC = """\
#!/bin/sh
for word; do
    if [ "$before" = -o ]; then echo stub > "$word"; fi
    before=$word
done
case " $* " in *" -dumpmachine "*) echo aarch64-linux-gnu ;; esac
"""
NVCC = "#!/bin/sh\necho Cuda compilation tools, release {release}, V{release}.1\n"


def target(catalog, arch, platform, **words) -> Target:
    (found,) = resolve(catalog, arch=arch, platform=platform, fat=True, **words)
    return found


@pytest.mark.parametrize(
    ("arch", "platform", "toolkit"),
    [
        ("7.2", "jetpack-5.1", "cuda-11.2"),
        ("8.7", "jetpack-5.1", "cuda-11.8"),
        ("7.2,8.7", "jetpack-5.1", "cuda-11.8"),
        ("7.2+PTX", "jetpack-5.1", "cuda-11.2"),
        ("8.7", "jetpack-6.2", "cuda-12.4"),
        ("11.0", "jetpack-7.0", "cuda-13.0"),
        ("8.7,11.0", "jetpack-7.2", "cuda-13.0"),
        ("7.0", "server-cuda-11.8", "cuda-11.8"),
        ("6.2", "debian-12", "cuda-11.8"),
    ],
)
def test_the_oldest_toolkit_that_makes_all_archs_is_chosen(catalog, arch, platform, toolkit):
    chosen = plan(target(catalog, arch, platform))
    assert chosen.cuda.name == toolkit
    parts = catalog.platform(platform).toolchain
    assert (chosen.compiler, chosen.sysroot, chosen.torch) == (
        parts.compiler, parts.sysroot, parts.torch,
    )  # fmt: skip
    assert chosen.parts == (parts.compiler, parts.sysroot, chosen.cuda, parts.torch)


def test_every_target_of_every_platform_has_a_plan_or_lacks_cuda(catalog):
    lacking = set()
    for platform in catalog.platforms:
        for code in platform.cuda.archs:
            try:
                plan(target(catalog, code, platform.name))
            except ToolMissingError:
                lacking.add(platform.name)
    assert lacking == {"jetpack-4.2", "jetpack-4.4", "jetpack-4.6"}


def test_a_wheel_without_device_code_needs_no_toolkit(catalog):
    chosen = plan(Target((), catalog.platform("jetpack-4.6")))
    assert chosen.cuda is None
    assert [part.name for part in chosen.parts] == [
        "gcc-9", "sysroot-bullseye", "torch-1.10.0-cp36"
    ]  # fmt: skip


def test_archs_that_no_toolkit_makes_together_are_told(catalog):
    platform = catalog.platform("jetpack-5.1")
    old, new = (toolkit.part for toolkit in platform.toolchain.cuda)
    parts = platform.toolchain.model_copy(
        update={"cuda": (platform.toolchain.cuda[0], catalog.part("cuda-13.0"))}
    )
    split = platform.model_copy(update={"toolchain": parts})
    both = target(catalog, "7.2,8.7", "jetpack-5.1")
    with pytest.raises(
        ConfigError, match=r"no CUDA toolkit of jetpack-5\.1 compiles for"
    ) as caught:
        plan(Target(both.code, split))
    assert "7.2, 8.7 together" in caught.value.what
    assert "CUDA 11.2: " in caught.value.why
    assert "CUDA 13.0: " in caught.value.why
    assert "without --fat" in caught.value.fix
    assert old.version == "11.2"
    assert new.version == "11.8"


def test_a_missing_part_is_told_with_where_it_is_and_what_to_pass(catalog):
    with pytest.raises(ToolMissingError) as caught:
        plan(target(catalog, "6.2", "jetpack-4.6"))
    assert caught.value.what == "the toolchain of jetpack-4.6 lacks 1 part: cuda"
    assert "--cuda-home: CUDA 10.2 for x86-64" in caught.value.fix
    assert "--cpu-only" in caught.value.fix
    assert "--sysroot" not in caught.value.fix


@pytest.fixture
def bare(catalog) -> Target:
    """A target of whose toolchain only the compiler is openly to be had."""
    platform = catalog.platform("jetpack-5.1")
    parts = platform.toolchain.model_copy(
        update={"sysroot": None, "cuda": (), "torch": None,
                "advice": {"sysroot": "the root of the board", "torch": "NVIDIA's wheel"}}
    )  # fmt: skip
    code = target(catalog, "7.2", "jetpack-5.1").code
    return Target(code, platform.model_copy(update={"toolchain": parts}))


def test_all_missing_parts_are_one_error_with_advice_for_each(bare):
    with pytest.raises(ToolMissingError) as caught:
        plan(bare)
    assert caught.value.what == "the toolchain of jetpack-5.1 lacks 3 parts: sysroot, cuda, torch"
    assert [line.strip() for line in caught.value.fix.splitlines()[1:]] == [
        "--sysroot: the root of the board",
        "--cuda-home: no open source of it is known",
        "--torch-wheel: NVIDIA's wheel",
    ]
    assert caught.value.exit_code == 4


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"cuda_home": Path("/c")}, "sysroot, torch"),
        ({"sysroot": Path("/s"), "torch_wheel": Path("/t")}, "cuda"),
        ({"python_dev": Path("/p")}, "sysroot, cuda, torch"),
    ],
)
def test_what_the_user_gives_is_not_missing(bare, given, left):
    with pytest.raises(ToolMissingError) as caught:
        plan(bare, OwnParts(**given))
    assert caught.value.what.endswith(f": {left}")


def test_with_all_parts_of_the_users_own_only_the_compiler_is_left(bare):
    own = OwnParts(cuda_home=Path("/c"), sysroot=Path("/s"), torch_wheel=Path("/t"))
    assert plan(bare, own).parts == (bare.platform.toolchain.compiler,)


def test_a_part_of_the_users_own_takes_the_place_of_the_pinned_one(catalog):
    orin = target(catalog, "8.7", "jetpack-6.2")
    assert plan(orin, OwnParts(cuda_home=Path("/c"))).cuda is None
    assert plan(orin, OwnParts(sysroot=Path("/s"))).sysroot is None
    assert plan(orin, OwnParts(torch_wheel=Path("/t"))).torch is None
    assert plan(orin, OwnParts(python_dev=Path("/p"))) == plan(orin)


@pytest.fixture
def tx2(catalog) -> Target:
    return target(catalog, "6.2", "debian-12")


@pytest.fixture
def outside(store, grow, monkeypatch):
    """Make parts of a few files in place of downloads; their contents are to be changed."""
    contents = {
        "compiler": {f"usr/bin/{TRIPLET}-{name}-11": GCC for name in ("gcc", "g++", "cpp")},
        "sysroot": {f"usr/lib/{TRIPLET}/libstdc++.so.6": "the target's libstdc++"},
        "cuda": {"bin/nvcc": NVCC.format(release="11.8")},
        "cuda_math": {"include/cublas_v2.h": "a header"},
        "torch": {"torch/version.py": "__version__ = '2.7.1'\n"},
        "base": {"rootfs/etc/passwd": "", "site-packages/torch/version.py": ""},
    }

    def make_part(named, store):
        content = contents[named.part.kind]
        path = store.tree(named.name, repr(content), lambda root: grow(root, content))
        return PartTree(named.part, path)

    monkeypatch.setattr(module, "make_part", make_part)
    monkeypatch.setattr(module, "has_part", lambda named, store: bool(
        list((store.root / "trees").glob(f"{named.name}-*"))
    ))  # fmt: skip
    return contents


def test_a_toolchain_is_linked_together_once(store, tx2, outside):
    assert not is_prepared(tx2, store)
    toolchain = prepare(tx2, store)
    assert is_prepared(tx2, store)
    assert toolchain.root.parent == store.root / "trees"
    assert (toolchain.multiarch, toolchain.cuda_version) == (TRIPLET, "11.8")
    assert {path.name for path in toolchain.root.iterdir()} == {
        "bin", "buildroot", "cuda", "links", "site-packages", "stubs", "sysroot"
    }  # fmt: skip
    assert (toolchain.torch / "version.py").is_file()
    assert (toolchain.root / "links/libstdc++.so").read_text() == "the target's libstdc++"
    assert {path.name for path in toolchain.stubs.iterdir()} == {
        *wrappers.CUDA_HALF_OF_TORCH, "libcudart.so"
    }  # fmt: skip
    assert prepare(tx2, store) == toolchain


def test_headers_of_math_libraries_are_in_cuda_home_where_asked_for(store, tx2, outside):
    bare = prepare(tx2, store)
    assert not list((store.root / "trees").glob("cuda-math-*"))
    math = plan(tx2).math[:1]
    toolchain = prepare(tx2, store, math=math)
    assert (toolchain.cuda_home / "include/cublas_v2.h").read_text() == "a header"
    assert (toolchain.cuda_home / "bin/nvcc").is_file()
    assert toolchain.cuda_version == "11.8"
    added = {path.name for path in toolchain.stubs.iterdir()}
    added -= {path.name for path in bare.stubs.iterdir()}
    assert added == {"libcublas.so", "libcublasLt.so", "libcusparse.so", "libcusolver.so"}
    assert not (bare.cuda_home / "include").exists()
    assert prepare(tx2, store, math=math) == toolchain
    assert prepare(tx2, store) == bare


@pytest.mark.parametrize(
    ("arch", "platform", "release"),
    [("7.2", "jetpack-5.1", ""), ("8.7", "jetpack-5.1", "11.8"), ("6.2", "debian-12", "11.8"),
     ("8.7", "jetpack-6.2", "12.4"), ("11.0", "jetpack-7.2", "13.0")],
)  # fmt: skip
def test_math_libraries_go_with_the_toolkit_that_is_chosen(catalog, arch, platform, release):
    chosen = plan(target(catalog, arch, platform))
    wanted = [f"cuda-{name}-{release}" for name in ("math", "curand", "cufft")] if release else []
    assert [part.name for part in chosen.math] == wanted
    assert not set(chosen.math) & set(chosen.parts)


def test_two_targets_of_a_platform_share_their_parts(store, catalog, tx2, outside):
    one = prepare(tx2, store)
    assert prepare(target(catalog, "8.7", "debian-12"), store).root == one.root
    without = prepare(Target((), tx2.platform), store)
    assert without.root != one.root
    assert (without.cuda_version, without.cuda_home.exists()) == ("", False)
    assert without.torch.resolve() == one.torch.resolve()


def test_links_within_the_cache_are_relative_and_hold_after_it_was_moved(store, tx2, outside):
    toolchain = prepare(tx2, store)
    for name in ("buildroot", "cuda", "sysroot", "site-packages"):
        assert not (toolchain.root / name).readlink().is_absolute()
    moved = store.root.rename(store.root.with_name("moved"))
    assert (moved / "trees" / toolchain.root.name / "cuda/bin/nvcc").is_file()


def test_what_the_user_gives_is_linked_from_where_it_lies(store, tx2, outside, grow, tmp_path):
    own = grow(tmp_path / "cuda", {"bin/nvcc": NVCC.format(release="11.4")})
    pinned = prepare(tx2, store)
    toolchain = prepare(tx2, store, OwnParts(cuda_home=own))
    assert toolchain.root != pinned.root
    assert (toolchain.root / "cuda").readlink() == own
    assert toolchain.cuda_version == "11.4"
    assert toolchain.torch.resolve() == pinned.torch.resolve()
    assert prepare(tx2, store) == pinned


@pytest.mark.parametrize("role", ["cuda_home", "sysroot", "torch_wheel", "python_dev"])
def test_what_the_user_gives_is_looked_at_before_anything_is_made(store, tx2, outside, role):
    with pytest.raises(ConfigError) as caught:
        prepare(tx2, store, OwnParts(**{role: Path("/no/such/folder")}))
    assert f"--{role.replace('_', '-')} /no/such/folder" in caught.value.what
    assert not (store.root / "trees").exists()


def test_a_damaged_lock_file_is_told_before_anything_is_made(store, tx2, outside, monkeypatch):
    def has_part(named, _store):
        if named.part.kind == "torch":
            raise ConfigError("the lock file is damaged", fix="mend it")
        return False

    monkeypatch.setattr(module, "has_part", has_part)
    with pytest.raises(ConfigError, match="the lock file is damaged"):
        prepare(tx2, store)
    assert not (store.root / "trees").exists()


def test_a_torch_wheel_of_the_users_own_is_unpacked_and_linked(store, tx2, outside, make_torch):
    wheel = make_torch(tx2.platform, version="2.7.1+mine")
    toolchain = prepare(tx2, store, OwnParts(torch_wheel=wheel))
    assert "mine" in (toolchain.torch / "version.py").read_text()


def test_a_sysroot_and_python_of_the_users_own_are_linked(  # noqa: PLR0917
    store, catalog, outside, grow, tmp_path, make_libc, headers
):
    orin = target(catalog, "8.7", "jetpack-6.2")
    outside["compiler"] = {f"usr/bin/{TRIPLET}-{name}-10": GCC for name in ("gcc", "g++", "cpp")}
    outside["cuda"] = {"bin/nvcc": NVCC.format(release="12.4")}
    root = grow(tmp_path / "root", {f"lib/{TRIPLET}/libc.so.6": make_libc()})
    python = grow(tmp_path / "python", headers("3.10"))
    toolchain = prepare(orin, store, OwnParts(sysroot=root, python_dev=python))
    assert (toolchain.root / "sysroot").readlink() == root
    assert toolchain.python_include == toolchain.root / "python/include/python3.10"
    assert toolchain.python_include.is_dir()
    assert toolchain.evidence("sysroot") == "exact"
    assert toolchain.evidence("site-packages") == "derived"


def test_what_the_torch_needs_of_its_build_goes_with_the_toolchain(store, catalog, outside):
    outside["compiler"] = {f"usr/bin/{TRIPLET}-{name}-10": GCC for name in ("gcc", "g++", "cpp")}
    outside["cuda"] = {"bin/nvcc": NVCC.format(release="11.2")}
    toolchain = prepare(target(catalog, "7.2", "jetpack-5.1"), store)
    assert toolchain.build_constraints == ("setuptools<70",)
    outside["compiler"] = {f"usr/bin/{TRIPLET}-{name}-12": GCC for name in ("gcc", "g++", "cpp")}
    outside["cuda"] = {"bin/nvcc": NVCC.format(release="13.0")}
    toolchain = prepare(target(catalog, "11.0", "jetpack-7.0"), store)
    assert toolchain.build_requirements == ("typing-extensions",)


def test_the_toolchain_is_another_when_the_recipe_changes(store, tx2, outside, monkeypatch):
    before = prepare(tx2, store).root
    real = module.inspect.getsource
    for changed in (wrappers, module):
        monkeypatch.setattr(
            module.inspect, "getsource",
            lambda asked, changed=changed: real(asked) + ("#" if asked is changed else ""),
        )  # fmt: skip
        assert prepare(tx2, store).root != before


@pytest.mark.parametrize(
    ("kind", "files", "why"),
    [
        ("compiler", {f"usr/bin/{TRIPLET}-g++-11": "#!/bin/sh\necho x86_64-linux-gnu\n"}, "x86_64"),
        ("compiler", {f"usr/bin/{TRIPLET}-g++-11": "#!/bin/sh\necho no GLIBC >&2; exit 1\n"},
         "no GLIBC"),
        ("cuda", {"bin/nvcc": NVCC.format(release="12.0")}, "release 12.0"),
        ("cuda", {"bin/nvcc": "#!/bin/sh\n"}, "it does not say 'release 11.8'"),
    ],
)  # fmt: skip
def test_a_compiler_that_is_not_what_the_part_says_is_refused(  # noqa: PLR0917
    store, tx2, outside, kind, files, why
):
    outside[kind] = outside[kind] | files
    with pytest.raises(ToolMissingError, match="does not work on this machine") as caught:
        prepare(tx2, store)
    assert why in caught.value.why
    assert "x86-64 machine" in caught.value.fix


def test_a_part_whose_lock_file_does_not_fit_is_not_prepared(store, tx2, outside, monkeypatch):
    prepare(tx2, store)
    monkeypatch.setattr(module, "fits", lambda named: named.part.kind != "torch")
    assert not is_prepared(tx2, store)


def test_a_platform_whose_parts_are_not_all_to_be_had_is_not_prepared(store, catalog):
    assert not is_prepared(target(catalog, "6.2", "jetpack-4.6"), store)


def test_a_base_is_made_where_the_platform_has_one(store, debian_12, outside):
    root = prepare_base(debian_12, store)
    assert (root / "rootfs/etc/passwd").is_file()
    assert (root / "site-packages/torch/version.py").is_file()


@pytest.mark.parametrize(
    ("platform", "known"),
    [("jetpack-5.1", "dustynv/l4t-pytorch:2.2-r35.4.1"), ("jetpack-7.0", "none is known")],
)
def test_a_platform_without_a_base_names_the_images_that_are_known(store, catalog, platform, known):
    with pytest.raises(ConfigError, match="is not made by jetship") as caught:
        prepare_base(catalog.platform(platform), store)
    assert known in caught.value.fix
    assert "--base" in caught.value.fix


def test_the_real_programs_are_asked_and_not_this_machines_own(store, tx2, outside, monkeypatch):
    toolchain = prepare(tx2, store)
    monkeypatch.setenv("PATH", os.defpath)
    asked = []
    real = proc.run
    monkeypatch.setattr(
        proc, "run", lambda argv, **more: (asked.append(argv), real(argv, **more))[1]
    )
    module.verify(toolchain)
    assert [Path(argv[0]).is_relative_to(toolchain.root) for argv in asked] == [True, True]
