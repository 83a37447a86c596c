import hashlib
import os
import zipfile

import pytest
from jetship import proc
from jetship.errors import ConfigError, DownloadError, ToolMissingError
from jetship.toolchain import assemble, debian, prepare, pypi
from jetship.toolchain.lock import Lock, Locked
from jetship.toolchain.model import Toolchain

PARTS = ("buildroot", "nvcc", "sysroot", "cuda_headers", "torch", "runtime", "torch_dependencies")
CUDA = "usr/lib/nvidia-cuda-toolkit"
LIBS = "usr/lib/aarch64-linux-gnu"
TRIPLET = "aarch64-linux-gnu"

GCC = """\
#!/bin/sh
for word; do
    if [ "$before" = -o ]; then echo stub > "$word"; fi
    before=$word
done
if [ "$1" = -dumpmachine ] || [ "$2" = -dumpmachine ] || [ "$3" = -dumpmachine ]; then
    echo aarch64-linux-gnu
else
    printf '%s\\n' "$0" "$@"
fi
"""


def item(name: str, version: str = "1", sha256: str = "") -> Locked:
    digest = sha256 or hashlib.sha256(name.encode()).hexdigest()
    return Locked(name=name, version=version, file=f"{name}_all.deb", sha256=digest, size=1)


def lock_of(**parts) -> Lock:
    return Lock(parts={name: (item(name),) for name in PARTS} | parts)


def digest(platform, lock) -> str:
    parts = prepare.TOOLCHAIN_PACKAGES + prepare.TOOLCHAIN_WHEELS
    return prepare._digest(platform, lock, parts)


@pytest.mark.parametrize("part", ["buildroot", "nvcc", "sysroot", "cuda_headers", "torch"])
def test_the_toolchain_is_another_when_a_file_changes(debian_12, part):
    changed = lock_of(**{part: (item(part, sha256="0" * 64),)})
    assert digest(debian_12, changed) != digest(debian_12, lock_of())
    more = lock_of(**{part: (item(part), item("more"))})
    assert digest(debian_12, more) != digest(debian_12, lock_of())


def test_the_toolchain_is_the_same_when_another_part_changes(debian_12):
    changed = lock_of(runtime=(item("runtime", sha256="0" * 64),))
    assert (
        digest(debian_12, changed) == digest(debian_12, lock_of()) == digest(debian_12, lock_of())
    )


def test_the_toolchain_is_another_when_the_compiler_or_the_recipe_changes(debian_12, monkeypatch):
    before = digest(debian_12, lock_of())
    source = debian_12.toolchain.model_copy(update={"compiler": "g++-12"})
    assert digest(debian_12.model_copy(update={"toolchain": source}), lock_of()) != before
    real = prepare.inspect.getsource
    for module in (assemble, debian, prepare):
        monkeypatch.setattr(
            prepare.inspect, "getsource",
            lambda asked, module=module: real(asked) + ("#" if asked is module else ""),
        )  # fmt: skip
        assert digest(debian_12, lock_of()) != before


def test_a_lock_without_a_part_is_refused(debian_12):
    with pytest.raises(ConfigError, match="has no part 'torch'") as caught:
        digest(debian_12, Lock(parts={name: (item(name),) for name in PARTS if name != "torch"}))
    assert "invoke lock --platform debian-12" in caught.value.fix


def test_a_lock_that_is_older_than_its_platform_is_refused(store, debian_12, monkeypatch):
    monkeypatch.setattr(pypi, "fetch", lambda *_: pytest.fail("nothing may be downloaded"))
    with pytest.raises(ConfigError, match="does not fit its platform file: part torch") as caught:
        prepare._wheels(store, debian_12, lock_of(torch=(item("torch", "2.6"),)), "torch")
    assert "torch==2.7.1" in caught.value.why
    assert "invoke lock" in caught.value.fix


def test_names_of_wheels_are_compared_in_their_normal_form(store, debian_12, monkeypatch):
    part = debian_12.toolchain.wheels["torch"].model_copy(
        update={"requirements": ("MarkupSafe==3.0.2", "typing_extensions==4.12.2")}
    )
    source = debian_12.toolchain.model_copy(update={"wheels": {"torch": part}})
    platform = debian_12.model_copy(update={"toolchain": source})
    monkeypatch.setattr(pypi, "fetch", lambda *_: ["fetched"])
    files = (item("markupsafe", "3.0.2"), item("typing-extensions", "4.12.2"))
    assert prepare._wheels(store, platform, lock_of(torch=files), "torch") == ["fetched"]


def wheel(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    return path


def test_wheels_are_unpacked_side_by_side(tmp_path):
    one = wheel(tmp_path / "one.whl", {"one/x.py": "1", "one.dist-info/RECORD": ""})
    two = wheel(tmp_path / "two.whl", {"two/x.py": "2"})
    prepare.unpack_wheels([one, two], tmp_path / "site")
    assert (tmp_path / "site/one/x.py").read_text() == "1"
    assert (tmp_path / "site/two/x.py").read_text() == "2"


def test_a_damaged_wheel_is_named(tmp_path):
    (tmp_path / "bad.whl").write_text("x")
    with pytest.raises(DownloadError, match=r"bad\.whl cannot be unpacked"):
        prepare.unpack_wheels([tmp_path / "bad.whl"], tmp_path / "site")


@pytest.fixture
def outside(make_deb, link, tmp_path, monkeypatch, debian_12):
    """All that `prepare` fetches, as small packages; returns the lock's parts to change."""
    programs = [f"usr/bin/{name}" for name in assemble.CUDA_PROGRAMS]
    packages = {
        "buildroot": make_deb("buildroot", {
            f"usr/bin/{TRIPLET}-g++-11": GCC,
            f"usr/bin/{TRIPLET}-gcc-11": GCC,
            f"usr/bin/{TRIPLET}-ld": "#!/bin/sh\necho ld $LD_LIBRARY_PATH\n",
            f"usr/lib/gcc-cross/{TRIPLET}/11/libstdc++.so": link("../../libstdc++.so.6"),
            f"usr/lib/gcc-cross/{TRIPLET}/11/libasan.so": link("../../libasan.so.6"),
            f"usr/lib/gcc-cross/{TRIPLET}/11/libgcc.so": "(script)",
        }),
        "nvcc": make_deb("nvcc", {
            f"{CUDA}/bin/nvcc": "#!/bin/sh\necho Cuda compilation tools, release 11.8, V11.8.89\n",
            f"{CUDA}/bin/cicc": "#!/bin/sh\n",
            f"{CUDA}/bin/crt/link.stub": "",
            f"{CUDA}/libdevice/libdevice.10.bc": "",
            **dict.fromkeys(programs, "#!/bin/sh\n"),
        }),
        "sysroot": make_deb("sysroot", {
            f"{LIBS}/libstdc++.so.6": "the target's libstdc++",
            f"{LIBS}/libcudart.so.11.8.89": "the target's libcudart",
            f"{LIBS}/libcudart.so.11.0": link("libcudart.so.11.8.89"),
        }),
    }  # fmt: skip
    wheels = {
        "cuda_headers": wheel(tmp_path / "h.whl", {
            "nvidia/cuda_runtime/include/cuda.h": "", "nvidia/cuda_cccl/include/cuda/std/array": "",
        }),
        "torch": wheel(tmp_path / "t.whl", {"torch/version.py": "__version__ = '2.7.1'\n"}),
    }  # fmt: skip
    asked = debian_12.toolchain.wheels
    parts = {
        name: tuple(
            item(prepare._normal(text).partition("==")[0], text.partition("==")[2])
            for text in asked[name].requirements
        )
        for name in wheels
    }
    monkeypatch.setattr(prepare, "read_lock", lambda _: lock_of(**parts))
    monkeypatch.setattr(debian, "fetch", lambda *words: [packages[words[-1][0].name]])
    found = {part[0].name: wheels[name] for name, part in parts.items()}
    monkeypatch.setattr(pypi, "fetch", lambda *words: [found[words[-1][0].name]])
    return packages, parts


def test_a_toolchain_is_assembled_once_from_what_was_fetched(
    store, debian_12, outside, monkeypatch
):
    assert not prepare.is_prepared(debian_12, store)
    toolchain = prepare.prepare(debian_12, store)
    assert prepare.is_prepared(debian_12, store)
    assert toolchain.root.is_relative_to(store.root / "trees")
    assert toolchain.multiarch == TRIPLET
    made = {path.relative_to(toolchain.root).as_posix() for path in toolchain.root.rglob("*")}
    assert {
        "bin/aarch64-linux-gnu-g++", "bin/aarch64-linux-gnu-ld", "cuda/bin/nvcc", "cuda/bin/ptxas",
        "cuda/bin/nvcc.profile", "cuda/include/cuda.h", "cuda/include/cuda/std/array",
        "cuda/nvvm/bin/cicc", "cuda/nvvm/libdevice/libdevice.10.bc", "cuda/lib64/libcudart.so",
        "site-packages/torch/version.py", "stubs/libc10_cuda.so", "stubs/libtorch_cuda.so",
        f"site-packages/torch/{assemble.CUDA_CMAKE_MACROS}",
    } <= made  # fmt: skip
    monkeypatch.setattr(debian, "fetch", lambda *_: pytest.fail("it is there already"))
    assert prepare.prepare(debian_12, store) == toolchain


def test_the_sysroot_alone_gives_the_targets_libraries(store, debian_12, outside):
    toolchain = prepare.prepare(debian_12, store)
    cross = toolchain.root / f"buildroot/usr/lib/gcc-cross/{TRIPLET}/11"
    assert (cross / "libstdc++.so").read_text() == "the target's libstdc++"
    assert not (cross / "libstdc++.so").readlink().is_absolute()
    assert not (cross / "libasan.so").is_symlink()
    assert (cross / "libgcc.so").read_text() == "(script)"
    assert (toolchain.cuda_home / "lib64/libcudart.so").read_text() == "the target's libcudart"


def test_the_compilers_find_their_folders_wherever_the_toolchain_lies(store, debian_12, outside):
    toolchain = prepare.prepare(debian_12, store)
    moved = Toolchain(debian_12, store.root / "a folder with blanks")
    toolchain.root.rename(moved.root)
    done = proc.run([moved.bin / f"{TRIPLET}-g++", "-c", "a b.cpp"], env={"PATH": os.defpath})
    assert done.ok, done.stderr
    said = done.stdout.splitlines()
    assert said[0] == f"{moved.root}/buildroot/usr/bin/{TRIPLET}-g++-11"
    assert said[1] == f"--sysroot={moved.sysroot}"
    assert said[-2:] == ["-c", "a b.cpp"]
    done = proc.run(
        [moved.bin / f"{TRIPLET}-ld"], env={"PATH": os.defpath, "LD_LIBRARY_PATH": "/x"}
    )
    assert done.stdout.startswith(f"ld {moved.root}/buildroot/usr/lib/x86_64-linux-gnu:/x")


@pytest.mark.parametrize(
    ("package", "program", "text"),
    [
        ("buildroot", f"usr/bin/{TRIPLET}-g++-11", "#!/bin/sh\necho x86_64-linux-gnu\n"),
        ("buildroot", f"usr/bin/{TRIPLET}-g++-11", "#!/bin/sh\necho no GLIBC >&2; exit 1\n"),
        ("nvcc", f"{CUDA}/bin/nvcc", "#!/bin/sh\necho release 12.0\n"),
    ],
)
def test_a_compiler_that_is_not_what_the_platform_names_is_refused(  # noqa: PLR0917
    store, debian_12, outside, package, program, text
):
    packages, _ = outside
    tree = packages[package].with_name(f"{package}.tree")
    (tree / program).write_text(text)
    done = proc.run(["dpkg-deb", "--build", "-Znone", tree, packages[package]])
    assert done.ok, done.stderr
    with pytest.raises(ToolMissingError, match="does not work on this machine") as caught:
        prepare.prepare(debian_12, store)
    assert caught.value.why
    assert caught.value.fix
    assert not prepare.is_prepared(debian_12, store)


def test_a_cross_compiler_that_links_nothing_is_told(store, debian_12, outside, tmp_path):
    toolchain = Toolchain(debian_12, tmp_path / "toolchain")
    toolchain.bin.mkdir(parents=True)
    program = toolchain.bin / f"{TRIPLET}-gcc"
    program.write_text("#!/bin/sh\necho 'not today' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(ToolMissingError) as caught:
        assemble.make_import_stubs(toolchain)
    assert caught.value.why == "not today"


def test_a_torch_with_cuda_needs_no_stubs_and_keeps_its_header(debian_12, tmp_path):
    toolchain = Toolchain(debian_12, tmp_path / "toolchain")
    header = toolchain.torch / assemble.CUDA_CMAKE_MACROS
    header.parent.mkdir(parents=True)
    header.write_text("its own")
    (toolchain.torch / "lib").mkdir()
    for name in ("libc10_cuda.so", "libtorch_cuda.so"):
        (toolchain.torch / "lib" / name).touch()
    assemble.complete_torch(toolchain)
    assemble.make_import_stubs(toolchain)
    assert header.read_text() == "its own"
    assert list(toolchain.stubs.iterdir()) == []


def test_a_sysroot_without_libcudart_is_told(debian_12, tmp_path):
    toolchain = Toolchain(debian_12, tmp_path)
    toolchain.cuda_home.mkdir()
    with pytest.raises(DownloadError, match="no libcudart") as caught:
        assemble._link_cuda_runtime(toolchain)
    assert "invoke lock" in caught.value.fix


def test_a_runtime_is_packages_and_wheels(store, debian_12, make_deb, tmp_path, monkeypatch):
    base = make_deb("base", {"bin/sh": "#!/bin/sh\n"})
    one = wheel(tmp_path / "one.whl", {"one/x.py": "1"})
    monkeypatch.setattr(prepare, "read_lock", lambda _: lock_of())
    monkeypatch.setattr(prepare, "_packages", lambda *_: [base])
    monkeypatch.setattr(prepare, "_wheels", lambda *_: [one])
    root = prepare.prepare_runtime(debian_12, store)
    assert (root / "rootfs/usr/bin/sh").is_file()
    assert (root / "site-packages/one/x.py").is_file()


def test_a_new_lock_asks_for_every_part(store, debian_12, monkeypatch):
    monkeypatch.setattr(debian, "lock_part", lambda *words: (item(words[2].architecture),))
    monkeypatch.setattr(pypi, "lock_part", lambda *words: (item(words[2].machine),))
    lock = prepare.write_new_lock(debian_12, store)
    assert set(lock.parts) == set(PARTS)
    assert lock.parts["sysroot"] == (item("arm64"),)
    assert lock.parts["torch"] == (item("target"),)
