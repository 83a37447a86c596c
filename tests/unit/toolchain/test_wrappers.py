"""The programs, links and stubs of a toolchain, run with a compiler that repeats its words."""

import os

import pytest
from jetship import proc
from jetship.errors import ToolMissingError
from jetship.toolchain import wrappers
from jetship.toolchain.model import Toolchain

TRIPLET = "aarch64-linux-gnu"
REPEAT = '#!/bin/sh\nprintf \'%s\\n\' "$0" "$@"\n'
LIBRARY_PATH = "#!/bin/sh\necho $LD_LIBRARY_PATH\n"
# Writes its -o, as a linker would.
LINK = """\
#!/bin/sh
for word; do
    if [ "$before" = -o ]; then printf '%s\\n' "$@" > "$word"; fi
    before=$word
done
"""


@pytest.fixture
def toolchain(tmp_path, debian_12, grow):
    root = grow(tmp_path / "a folder/toolchain", {
        f"buildroot/usr/bin/{TRIPLET}-gcc-11": REPEAT,
        f"buildroot/usr/bin/{TRIPLET}-g++-11": REPEAT,
        f"buildroot/usr/bin/{TRIPLET}-cpp-11": REPEAT,
        f"buildroot/usr/bin/{TRIPLET}-ld": LIBRARY_PATH,
        f"buildroot/usr/bin/{TRIPLET}-c++filt": REPEAT,
    })  # fmt: skip
    return Toolchain(debian_12, root, "11.8")


@pytest.fixture
def ask(toolchain):
    def ask(name, *words, **variables):
        env = {"PATH": os.defpath} | variables
        done = proc.run([toolchain.bin / f"{TRIPLET}-{name}", *words], env=env)
        assert done.ok, done.stderr
        return done.stdout.splitlines()

    return ask


@pytest.mark.parametrize("name", ["gcc", "g++", "cpp"])
def test_a_compiler_is_the_parts_own_release_bound_to_the_sysroot(toolchain, ask, name):
    wrappers.write_wrappers(toolchain, 11)
    root = toolchain.root
    assert ask(name, "-c", "a b.cpp") == [
        f"{root}/buildroot/usr/bin/{TRIPLET}-{name}-11",
        f"--sysroot={root}/sysroot",
        f"-L{root}/links",
        f"-ffile-prefix-map={root}=/toolchain",
        "-c",
        "a b.cpp",
    ]


def test_a_compiler_is_told_to_forget_where_the_project_lies(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    words = ask("g++", "x.cpp", JETSHIP_SOURCES="/my ops")
    assert words[-2:] == ["-ffile-prefix-map=/my ops/=", "x.cpp"]


@pytest.mark.parametrize(
    ("word", "becomes"),
    [
        ("-I/usr/include", "-I=/usr/include"),
        ("-I/usr/include/eigen3", "-I=/usr/include/eigen3"),
        ("-L/usr/lib/x86_64-linux-gnu", "-L=/usr/lib/x86_64-linux-gnu"),
        ("-L/lib/aarch64-linux-gnu", "-L=/lib/aarch64-linux-gnu"),
        ("-I/usr/local/include", "-I=/usr/local/include"),
        ("-L/usr/local/lib", "-L=/usr/local/lib"),
        ("-I/usr/local/cuda/include", "-I/the cuda/include"),
        ("-L/usr/local/cuda/lib64", "-L/the cuda/lib64"),
        ("-I/usr/local/cuda/targets/x/include", "-I/the cuda/targets/x/include"),
    ],
)
def test_what_a_setup_py_names_by_its_place_on_the_target_is_the_targets(
    toolchain, ask, word, becomes
):
    wrappers.write_wrappers(toolchain, 11)
    words = ask("g++", "-c", word, "x y.cpp", CUDA_HOME="/the cuda")
    assert words[-3:] == ["-c", becomes, "x y.cpp"]


@pytest.mark.parametrize("flag", ["-I", "-L", "-isystem", "-iquote", "-idirafter"])
def test_a_folder_may_be_a_word_of_its_own(toolchain, ask, flag):
    wrappers.write_wrappers(toolchain, 11)
    asked = (flag, "/usr/include/x", flag, "/usr/local/cuda-11.8/include", flag, "/home/me/x")
    words = ask("g++", *asked, CUDA_HOME="/the cuda")
    assert words[-6:] == [flag, "=/usr/include/x", flag, "/the cuda/include", flag, "/home/me/x"]


def test_system_folders_are_the_targets_too(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    assert ask("g++", "-isystem/usr/include")[-1] == "-isystem=/usr/include"


def test_without_cuda_home_the_toolchains_own_cuda_is_meant(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    assert ask("g++", "-I/usr/local/cuda/include")[-1] == f"-I{toolchain.root}/cuda/include"


LEFT_ALONE = [
    "-I/home/me/usr/include", "-Iinclude", "-I./usr/include", "-I/opt/usr/lib", "-L=/usr/lib",
    "-L/root/.cache/trees/usr/lib", "/usr/include/x.cpp", "/usr/lib/crt1.o", "-l/usr/lib/x",
    "-DROOT=\"/usr/include\"", "-DP=-I/usr/include", "-Wl,-rpath,/usr/lib", "-o", "/usr/lib/x.o",
    "a b.cpp", "", "*", "$HOME", "`id`", "'", '"', "\\", "-o", "/usr/local/include", "ä;rm", "a  b",
]  # fmt: skip


def test_all_other_words_reach_the_compiler_as_they_are_and_in_order(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    assert ask("gcc", *LEFT_ALONE)[-len(LEFT_ALONE) :] == LEFT_ALONE


def test_a_build_may_name_a_compiler_cache_that_knows_the_compiler_by_its_part(
    toolchain, ask, grow, tmp_path
):
    part = grow(tmp_path / "gcc-11-0123", {"x": ""})
    (toolchain.root / "buildroot").rename(tmp_path / "old")
    (tmp_path / "old").rename(part / "all")
    (toolchain.root / "buildroot").symlink_to(part / "all")
    wrappers.write_wrappers(toolchain, 11)
    shown = '#!/bin/sh\necho "$CCACHE_COMPILERCHECK"\nexec "$@"\n'
    grow(tmp_path, {"my cache": shown})
    words = ask("g++", "-c", "a b.cpp", JETSHIP_CCACHE=str(tmp_path / "my cache"))
    assert words[0] == "string:all"
    assert words[1] == f"{toolchain.root}/buildroot/usr/bin/{TRIPLET}-g++-11"
    assert words[-2:] == ["-c", "a b.cpp"]


def test_the_programs_find_their_folders_wherever_the_toolchain_lies(toolchain, tmp_path):
    wrappers.write_wrappers(toolchain, 11)
    moved = Toolchain(toolchain.platform, tmp_path / "moved", "11.8")
    toolchain.root.rename(moved.root)
    done = proc.run([moved.bin / f"{TRIPLET}-g++"], env={"PATH": os.defpath})
    assert done.stdout.splitlines()[:2] == [
        f"{moved.root}/buildroot/usr/bin/{TRIPLET}-g++-11", f"--sysroot={moved.sysroot}"
    ]  # fmt: skip


def test_the_compilers_libraries_come_before_the_users(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    own = f"{toolchain.root}/buildroot/usr/lib/x86_64-linux-gnu"
    assert ask("ld") == [own]
    assert ask("ld", LD_LIBRARY_PATH="/x") == [f"{own}:/x"]


def test_binutils_get_no_options_of_a_compiler(toolchain, ask):
    wrappers.write_wrappers(toolchain, 11)
    assert ask("c++filt", "_Z1fv") == [
        f"{toolchain.root}/buildroot/usr/bin/{TRIPLET}-c++filt",
        "_Z1fv",
    ]
    names = {path.name.removeprefix(f"{TRIPLET}-") for path in toolchain.bin.iterdir()}
    assert names == {*wrappers.BINUTILS, "gcc", "g++", "cpp"}


def test_templates_are_the_wheels_own_where_the_targets_libstdcxx_is_older(toolchain, catalog, ask):
    old = Toolchain(catalog.platform("jetpack-4.6"), toolchain.root, "")
    wrappers.write_wrappers(old, 11)
    assert ask("g++", "x.cpp")[-2:] == [f"-I{old.root}/include", "x.cpp"]
    header = (old.root / "include/bits/c++config.h").read_text()
    assert header.splitlines()[-3:] == [
        "#include_next <bits/c++config.h>",
        "#undef _GLIBCXX_EXTERN_TEMPLATE",
        "#define _GLIBCXX_EXTERN_TEMPLATE 0",
    ]


def test_templates_are_left_to_a_libstdcxx_that_is_new_enough(toolchain):
    wrappers.write_wrappers(toolchain, 11)
    assert not (toolchain.root / "include").exists()


@pytest.mark.parametrize("base", ["lib", "usr/lib"])
def test_the_linker_finds_the_targets_own_runtimes(toolchain, grow, base):
    grow(toolchain.sysroot / base / TRIPLET, {"libstdc++.so.6": "the target's", "libgomp.so.1": ""})
    wrappers.link_target_runtimes(toolchain)
    links = toolchain.root / "links"
    assert {path.name for path in links.iterdir()} == {"libstdc++.so", "libgomp.so"}
    assert (links / "libstdc++.so").read_text() == "the target's"
    assert not (links / "libstdc++.so").readlink().is_absolute()


@pytest.fixture
def linking(toolchain, grow):
    """A toolchain whose compiler writes the words of a link into what it makes."""
    grow(toolchain.root, {f"bin/{TRIPLET}-gcc": LINK})
    return toolchain


def stubs(toolchain):
    return {path.name: path.read_text() for path in toolchain.stubs.iterdir()}


def test_the_cuda_half_of_a_cpu_build_of_torch_is_stubs(linking, monkeypatch):
    monkeypatch.setattr(wrappers, "_has_target_runtime", lambda _: True)
    wrappers.make_import_stubs(linking)
    made = stubs(linking)
    assert set(made) == {"libc10_cuda.so", "libtorch_cuda.so"}
    for name, words in made.items():
        assert f"-Wl,-soname,{name}" in words
        assert "-nostdlib" in words


def test_a_torch_with_cuda_needs_no_stubs(linking, monkeypatch, grow):
    monkeypatch.setattr(wrappers, "_has_target_runtime", lambda _: True)
    grow(linking.torch / "lib", dict.fromkeys(("libc10_cuda.so", "libtorch_cuda.so"), ""))
    wrappers.make_import_stubs(linking)
    assert stubs(linking) == {}


@pytest.mark.parametrize(
    ("platform", "soname"),
    [
        ("jetpack-4.6", "libcudart.so.10.2"),
        ("jetpack-5.1", "libcudart.so.11.0"),
        ("jetpack-7.2", "libcudart.so.13"),
    ],
)
def test_a_toolkit_without_the_targets_runtime_gets_a_stub_of_its_name(
    linking, catalog, platform, soname
):
    wrappers.make_import_stubs(Toolchain(catalog.platform(platform), linking.root, ""))
    assert f"-Wl,-soname,{soname}" in stubs(linking)["libcudart.so"]


def test_the_runtime_of_the_build_machine_is_not_the_targets(linking):
    lib64 = linking.cuda_home / "lib64"
    lib64.mkdir(parents=True)
    made = proc.run(["gcc", "-shared", "-nostdlib", "-x", "c", "-o", lib64 / "libcudart.so",
                     os.devnull])  # fmt: skip
    assert made.ok, made.stderr
    wrappers.make_import_stubs(linking)
    assert "libcudart.so" in stubs(linking)


def test_the_targets_own_folder_of_a_toolkit_for_two_machines_is_looked_into(linking):
    tegra = linking.cuda_home / "targets/aarch64-linux/lib"
    tegra.mkdir(parents=True)
    library = tegra / "libcudart.so"
    made = proc.run(["gcc", "-shared", "-nostdlib", "-x", "c", "-o", library, os.devnull])
    assert made.ok, made.stderr
    data = bytearray(library.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # e_machine: aarch64
    library.write_bytes(data)
    wrappers.make_import_stubs(linking)
    assert "libcudart.so" not in stubs(linking)


def test_a_cross_compiler_that_links_nothing_is_told(toolchain, grow):
    grow(toolchain.root, {f"bin/{TRIPLET}-gcc": "#!/bin/sh\necho 'not today' >&2\nexit 1\n"})
    with pytest.raises(ToolMissingError) as caught:
        wrappers.make_import_stubs(toolchain)
    assert caught.value.why == "not today"
    assert "x86-64 machine" in caught.value.fix
