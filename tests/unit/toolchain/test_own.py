"""Parts of the user's own, and what is said of those that are not what they should be."""

from pathlib import Path

import pytest
from jetship.errors import ConfigError, ToolMissingError
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.model import Target
from jetship.toolchain import imagetree, layout
from jetship.toolchain.own import examine, own_cuda, own_python, own_sysroot, own_torch
from jetship.toolchain.ownparts import NOTHING_OWN, OwnParts, OwnSupply

NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 10.2, V10.2.300'\n"
LIBC = "lib/aarch64-linux-gnu/libc.so.6"


@pytest.fixture
def tx2_platform(catalog):
    return catalog.platform("jetpack-4.6")


@pytest.mark.parametrize(
    ("release", "name"), [("13.0", "jetpack-6.2"), ("11.4", "jetpack-4.6"), ("10.0", "jetpack-4.6")]
)
def test_a_toolkit_whose_runtime_the_platform_lacks_is_refused(
    tmp_path, grow, catalog, release, name
):
    nvcc = NVCC.replace("10.2", release)
    with pytest.raises(ConfigError, match=rf"--cuda-home \S+ is CUDA {release}") as caught:
        own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": nvcc}), catalog.platform(name))
    assert catalog.platform(name).cuda.version in caught.value.fix


def test_a_newer_toolkit_of_the_same_cuda_is_taken_with_a_warning(tmp_path, grow, catalog, capsys):
    nvcc = NVCC.replace("10.2", "12.9")
    given = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": nvcc}), catalog.platform("jetpack-6.2"))
    assert given.cuda_version == "12.9"
    assert "newer than 12.6" in capsys.readouterr().err


def test_a_cuda_toolkit_says_its_release(tmp_path, grow, tx2_platform):
    given = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC}), tx2_platform)
    assert (given.path, given.cuda_version) == (tmp_path / "cuda", "10.2")
    assert not given.exact


def test_a_cuda_toolkit_that_was_updated_in_place_is_another_one(tmp_path, grow, tx2_platform):
    before = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC}), tx2_platform)
    assert own_cuda(tmp_path / "cuda", tx2_platform).identity == before.identity
    after = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC.replace("300", "89")}), tx2_platform)
    assert after.identity != before.identity


def test_a_folder_that_is_no_cuda_toolkit_is_told(tmp_path, tx2_platform):
    with pytest.raises(ConfigError, match="has no bin/nvcc") as caught:
        own_cuda(tmp_path, tx2_platform)
    assert str(tmp_path) in caught.value.what
    assert "/usr/local/cuda-10.2" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        ("#!/bin/sh\necho hello\n", 0o755, "does not say its release"),
        ("#!/bin/sh\nexit 1\n", 0o755, "does not say its release"),
        (NVCC, 0o644, "is not executable"),
        ("\x7fELF", 0o755, "cannot be used"),
        ("", 0o755, "cannot be run"),
        ("#!/no/such/shell\n", 0o755, "cannot be run"),
    ],
)
def test_an_nvcc_that_does_not_work_is_told(tmp_path, grow, content, mode, said, tx2_platform):  # noqa: PLR0917
    folder = grow(tmp_path / "cuda", {"bin/nvcc": content})
    (folder / "bin/nvcc").chmod(mode)
    with pytest.raises(ConfigError, match=said) as caught:
        own_cuda(folder, tx2_platform)
    assert f"bin/nvcc of --cuda-home {folder} " in caught.value.what
    assert caught.value.fix


def test_an_nvcc_of_another_machine_is_told(tmp_path, grow, make_libc, tx2_platform):
    folder = grow(tmp_path / "cuda", {"bin/nvcc": make_libc()})
    (folder / "bin/nvcc").chmod(0o755)
    with pytest.raises(ConfigError, match="is for aarch64, and this machine is x86_64"):
        own_cuda(folder, tx2_platform)


@pytest.mark.parametrize("base", ["", "usr/"])
def test_a_sysroot_has_the_targets_c_library(tmp_path, grow, make_libc, debian_12, base, capsys):  # noqa: PLR0917
    root = grow(tmp_path / "root", {f"{base}{LIBC}": make_libc("2.36")})
    given = own_sysroot(root, debian_12)
    assert given.path == tmp_path / "root"
    assert given.exact
    grow(tmp_path / "root", {f"{base}{LIBC}": make_libc("2.31")})
    assert own_sysroot(tmp_path / "root", debian_12).identity != given.identity
    assert capsys.readouterr().err == ""


def test_a_sysroot_whose_glibc_is_newer_is_taken_with_a_warning(
    tmp_path, grow, make_libc, debian_12, capsys
):
    root = grow(tmp_path / "root", {LIBC: make_libc("2.39")})
    assert own_sysroot(root, debian_12).exact
    said = capsys.readouterr().err
    assert f"glibc 2.39 of --sysroot {root} is newer than 2.36 of debian-12" in said
    assert "the check refuses it" in said


def test_a_sysroot_of_this_machine_is_told(tmp_path, grow, debian_12):
    root = grow(tmp_path / "root", {"usr/lib/x86_64-linux-gnu/libc.so.6": "libc"})
    with pytest.raises(
        ConfigError, match=r"has no usr/lib/aarch64-linux-gnu/libc\.so\.6"
    ) as caught:
        own_sysroot(root, debian_12)
    assert str(root) in caught.value.what
    assert "aarch64" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "said", "why"),
    [
        (b"", "cannot be used", "the file is empty"),
        (b"INPUT(libc.so)", "cannot be used", "does not begin as an ELF file does"),
        (b"\x7fELF\2\1", "cannot be used", ""),
        ("x86_64", "is for x86_64, and debian-12 is aarch64", ""),
        ("stripped", "is not glibc", ""),
    ],
)
def test_a_c_library_that_is_none_of_the_targets_is_told(  # noqa: PLR0917
    tmp_path, grow, make_libc, debian_12, content, said, why
):
    if content == "x86_64":
        content = make_libc("2.36", "x86_64")
    elif content == "stripped":
        content = make_libc("2.36").replace(b"GLIBC_", b"OTHER_")
    root = grow(tmp_path / "root", {LIBC: content})
    with pytest.raises(ConfigError, match=said) as caught:
        own_sysroot(root, debian_12)
    assert caught.value.what.startswith(f"{LIBC} of --sysroot {root} ")
    assert why in caught.value.why
    assert "aarch64" in caught.value.fix


def test_a_torch_wheel_is_unpacked_into_the_cache_once(store, make_torch, tx2_platform):
    wheel = make_torch(tx2_platform)
    given = own_torch(wheel, tx2_platform, store)
    assert given.path.is_relative_to(store.root)
    assert (given.path / "torch/version.py").is_file()
    assert (given.path / layout.CUDA_CMAKE_MACROS).is_file()
    assert given.exact
    assert own_torch(wheel, tx2_platform, store) == given
    other = make_torch(tx2_platform, text="__version__ = '1.10.0' # another\n")
    assert own_torch(other, tx2_platform, store).identity != given.identity


def test_the_name_of_a_torch_wheels_file_says_nothing(store, make_torch, catalog):
    platform = catalog.platform("jetpack-5.1")
    wheel = make_torch(platform, version="2.1.0a0+41361538.nv23.06", name="downloaded (1)")
    assert own_torch(wheel, platform, store).exact


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tag": "cp310-cp310-linux_aarch64"}, "is for cp310-cp310-linux_aarch64, and jetpack-5.1"),
        ({"tag": "cp38-cp38-manylinux1_x86_64"}, "is for cp38-cp38-manylinux1_x86_64, and"),
        ({"tag": "cp38-abi3-linux_aarch64"}, "takes cp38-cp38-*_aarch64"),
        ({"version": "2.0.0+nv23.05"}, "is torch 2.0.0+nv23.5, and jetpack-5.1 has torch 2.1.0a0"),
        ({"version": "mine"}, "is damaged"),
    ],
)
def test_a_torch_wheel_of_another_target_is_told(store, make_torch, catalog, change, said):
    platform = catalog.platform("jetpack-5.1")
    wheel = make_torch(platform, **change)
    with pytest.raises(ConfigError) as caught:
        own_torch(wheel, platform, store)
    assert caught.value.what.startswith(f"--torch-wheel {wheel} is ")
    assert said in caught.value.what
    assert caught.value.fix
    assert not (store.root / "trees").exists()


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"numpy/version.py": ""}, "holds no torch"),
        ({"torch/version.py": ""}, r"it has no \.dist-info/WHEEL"),
        ({"torch/version.py": "", "torch-1.dist-info/WHEEL": "Tag: x"}, "is damaged"),
    ],
)
def test_another_wheel_is_no_torch_and_leaves_nothing(
    store, make_wheel_file, members, said, tx2_platform
):
    with pytest.raises(ConfigError, match=said) as caught:
        own_torch(make_wheel_file("numpy", members), tx2_platform, store)
    assert caught.value.fix
    assert not (store.root / "trees").exists()


def test_a_damaged_torch_wheel_leaves_nothing(store, make_torch, tx2_platform):
    wheel = make_torch(tx2_platform, text="__version__ = 'a version that will be another one'\n")
    wheel.write_bytes(wheel.read_bytes().replace(b"will be another", b"will be an0ther"))
    with pytest.raises(ConfigError, match="is damaged") as caught:
        own_torch(wheel, tx2_platform, store)
    assert caught.value.what == f"--torch-wheel {wheel} is damaged"
    assert "CRC" in caught.value.why
    assert list((store.root / "trees").iterdir()) == []
    assert list((store.root / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "does not exist"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: path.touch(), "is not a wheel"),
        (lambda path: path.write_text("not a wheel"), "is not a wheel"),
    ],
    ids=["missing", "folder", "empty", "text"],
)
def test_what_is_no_wheel_is_told(store, tmp_path, make, said, tx2_platform):
    path = tmp_path / "torch.whl"
    make(path)
    with pytest.raises(ConfigError, match=said) as caught:
        own_torch(path, tx2_platform, store)
    assert str(path) in caught.value.what
    assert "torch-*.whl" in caught.value.fix


def test_python_headers_are_those_of_the_platforms_python(tmp_path, grow, headers, catalog):
    root = grow(tmp_path / "python", headers("3.8"))
    given = own_python(root, catalog.platform("jetpack-5.1"))
    assert given.path == root
    with pytest.raises(ConfigError, match=r"has no include/python3\.10/patchlevel\.h") as caught:
        own_python(root, catalog.platform("jetpack-6.2"))
    assert "Python 3.10 for aarch64" in caught.value.fix


DEBIANS = """\
#if defined(__x86_64__)
# include <x86_64-linux-gnu/python3.8/pyconfig.h>
#elif defined(__aarch64__)
# include <aarch64-linux-gnu/python3.8/pyconfig.h>
#endif
"""
X86 = "#define HAVE_GCC_ASM_FOR_X64 1\n"
NOT_X86 = "/* #undef HAVE_GCC_ASM_FOR_X64 */\n"
FOLDER = "include/python3.8"


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({f"{FOLDER}/patchlevel.h": ""}, r"patchlevel\.h of --python-dev \S+ does not say its v"),
        ({f"{FOLDER}/patchlevel.h": "#define PY_MAJOR_VERSION 3\n#define PY_MINOR_VERSION 9\n"},
         r"patchlevel\.h of --python-dev \S+ is of Python 3\.9"),
        ({f"{FOLDER}/pyconfig.h": ""}, r"pyconfig\.h of --python-dev \S+ is empty"),
        ({f"{FOLDER}/pyconfig.h": X86}, r"pyconfig\.h of --python-dev \S+ is for x86_64, and"),
        ({f"{FOLDER}/pyconfig.h": DEBIANS,
          "include/x86_64-linux-gnu/python3.8/pyconfig.h": X86}, "is not for aarch64: its "),
    ],
)  # fmt: skip
def test_headers_of_another_python_or_machine_are_told(  # noqa: PLR0917
    tmp_path, grow, headers, catalog, files, said
):
    root = grow(tmp_path / "python", headers("3.8") | files)
    with pytest.raises(ConfigError, match=said) as caught:
        own_python(root, catalog.platform("jetpack-5.1"))
    assert "Python 3.8 for aarch64" in caught.value.fix


def test_headers_without_a_configuration_are_told(tmp_path, grow, headers, catalog):
    root = grow(tmp_path / "python", headers("3.8"))
    (root / FOLDER / "pyconfig.h").unlink()
    with pytest.raises(ConfigError, match=r"has no include/python3\.8/pyconfig\.h"):
        own_python(root, catalog.platform("jetpack-5.1"))


def test_debians_headers_and_those_of_either_machine_are_taken(tmp_path, grow, headers, catalog):
    debians = {"include/aarch64-linux-gnu/python3.8/pyconfig.h": NOT_X86}
    root = grow(tmp_path / "debian", headers("3.8", DEBIANS) | debians)
    assert own_python(root, catalog.platform("jetpack-5.1")).path == root
    grow(tmp_path / "other", headers("3.8", NOT_X86))
    assert own_python(tmp_path / "other", catalog.platform("jetpack-5.1"))
    x86 = catalog.platform("x86-64-cuda-12.4")
    grow(tmp_path / "x86", headers("3.10", X86))
    assert own_python(tmp_path / "x86", x86)
    grow(tmp_path / "x86", headers("3.10", NOT_X86))
    with pytest.raises(ConfigError, match="is for another machine than x86_64"):
        own_python(tmp_path / "x86", x86)


def test_paths_are_made_absolute(tmp_path, grow, monkeypatch, tx2_platform):
    grow(tmp_path / "cuda", {"bin/nvcc": NVCC})
    monkeypatch.chdir(tmp_path)
    assert own_cuda(Path("cuda"), tx2_platform) == own_cuda(tmp_path / "cuda", tx2_platform)


@pytest.mark.parametrize("make", [None, Path.touch], ids=["missing", "file"])
@pytest.mark.parametrize("name", ["cuda_home", "sysroot", "python_dev"])
def test_what_is_no_folder_is_told(tmp_path, tx2_platform, name, make):
    path = tmp_path / "it"
    if make:
        make(path)
    with pytest.raises(ConfigError) as caught:
        examine(OwnParts(**{name: path}), tx2_platform)
    said = "is not a folder" if make else "does not exist"
    assert caught.value.what == f"--{name.replace('_', '-')} {path} {said}"
    assert caught.value.fix


def test_all_that_is_wrong_is_one_error(tmp_path, tx2_platform):
    parts = OwnParts(
        cuda_home=tmp_path, sysroot=tmp_path / "s", torch_wheel=tmp_path, python_dev=Path("p"),
        places={"sysroot": "deploy.yaml:7:5: own_parts.jetpack-4.6.sysroot"},
    )  # fmt: skip
    with pytest.raises(ConfigError) as caught:
        examine(parts, tx2_platform)
    assert caught.value.what.splitlines() == [
        "4 of your own parts cannot be used",
        f"  --cuda-home {tmp_path} has no bin/nvcc",
        f"  deploy.yaml:7:5: own_parts.jetpack-4.6.sysroot {tmp_path}/s does not exist",
        f"  --torch-wheel {tmp_path} is a folder",
        "  --python-dev p does not exist",
    ]
    assert len(caught.value.fix.splitlines()) == 4


def test_parts_given_for_all_come_before_those_of_a_platform(catalog, tx2_platform):
    of_tx2 = OwnParts(cuda_home=Path("/c"), sysroot=Path("/s"), places={"sysroot": "there"})
    supply = OwnSupply(OwnParts(cuda_home=Path("/mine")), {"jetpack-4.6": of_tx2})
    code = (DeviceCode(Arch.parse("6.2")),)
    found = supply.of(Target(code, tx2_platform))
    assert found == OwnParts(cuda_home=Path("/mine"), sysroot=Path("/s"))
    assert (found.said("cuda_home"), found.said("sysroot")) == ("--cuda-home /mine", "there /s")
    assert supply.of(Target(code, catalog.platform("debian-12"))) == supply.given


def test_a_target_without_device_code_needs_no_cuda_of_deploy_yaml(tx2_platform):
    supply = OwnSupply(NOTHING_OWN, {"jetpack-4.6": OwnParts(cuda_home=Path("/c"))})
    assert supply.of(Target((), tx2_platform)) == NOTHING_OWN
    given = OwnSupply(OwnParts(cuda_home=Path("/mine")), supply.by_platform)
    assert given.of(Target((), tx2_platform)).cuda_home == Path("/mine")


def test_an_image_is_looked_at_with_all_else(tmp_path, tx2_platform, monkeypatch):
    def look(name, platform):
        raise ConfigError(f"the engine has no image {name}", fix="pull it")

    monkeypatch.setattr(imagetree, "look_at_image", look)
    with pytest.raises(ConfigError) as caught:
        examine(OwnParts(image="nope:1"), tx2_platform)
    assert caught.value.what == "the engine has no image nope:1"
    with pytest.raises(ConfigError, match=r"^deploy.yaml:3:5: it: the engine has no image nope:1"):
        examine(OwnParts(image="nope:1", places={"image": "deploy.yaml:3:5: it"}), tx2_platform)
    parts = OwnParts(image="nope:1", sysroot=tmp_path / "s", cuda_home=tmp_path / "c")
    with pytest.raises(ConfigError) as caught:
        examine(parts, tx2_platform)
    assert caught.value.what.splitlines() == [
        "4 of your own parts cannot be used",
        f"  --image nope:1 and --sysroot {tmp_path}/s both give the target's sysroot",
        f"  --cuda-home {tmp_path}/c does not exist",
        f"  --sysroot {tmp_path}/s does not exist",
        "  the engine has no image nope:1",
    ]


def test_an_engine_that_does_not_answer_is_a_tool_that_is_missing(tx2_platform, monkeypatch):
    def look(name, platform):
        raise ToolMissingError("no Docker engine answers at here")

    monkeypatch.setattr(imagetree, "look_at_image", look)
    with pytest.raises(ToolMissingError, match="no Docker engine answers"):
        examine(OwnParts(image="nope:1"), tx2_platform)


def test_a_hollow_torch_wheel_is_told_before_it_is_used(make_wheel_file, tx2_platform):
    info = f"torch-{tx2_platform.torch.version}.dist-info"
    members = {
        "torch/version.py": "",
        "torch/lib/libc10.so": "",
        f"{info}/METADATA": f"Version: {tx2_platform.torch.version}\n",
        f"{info}/WHEEL": "Tag: cp36-cp36m-linux_aarch64\n",
    }
    wheel = make_wheel_file("torch", members)
    with pytest.raises(ConfigError) as caught:
        examine(OwnParts(torch_wheel=wheel), tx2_platform)
    said = (
        f"--torch-wheel {wheel} is no whole torch: it lacks torch/lib/libtorch.so, torch/include/"
    )
    assert caught.value.what == said


@pytest.mark.parametrize(
    ("given", "behind", "found"),
    [
        ({"image": "i"}, {"sysroot": "/s", "torch_wheel": "/t", "cuda_home": "/c"},
         {"image": "i", "cuda_home": "/c"}),
        ({"sysroot": "/s"}, {"image": "i", "python_dev": "/p"},
         {"sysroot": "/s", "python_dev": "/p"}),
        ({"torch_wheel": "/t"}, {"image": "i"}, {"torch_wheel": "/t", "image": "i"}),
    ],
)  # fmt: skip
def test_an_image_and_a_sysroot_exclude_each_other_across_the_two(given, behind, found):
    one, other, wanted = (
        OwnParts(**{name: text if name == "image" else Path(text) for name, text in row.items()})
        for row in (given, behind, found)
    )
    assert one.over(other) == wanted
