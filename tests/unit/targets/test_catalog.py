import fnmatch
import re
import shutil

import pytest
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.contradictions import contradictions
from jetship.toolchain import sources
from jetship.toolchain.lock import read_lock
from packaging.specifiers import SpecifierSet
from packaging.version import Version


@pytest.fixture
def folder(tmp_path):
    """A copy of the data, to be damaged."""
    return shutil.copytree(data_dir("toolchains"), tmp_path / "toolchains")


def test_names_are_unique_and_every_file_is_named_after_its_platform(catalog):
    boards = [board.name for board in catalog.boards]
    assert len(boards) == len(set(boards))
    files = sorted(path.stem for path in (data_dir("toolchains") / "platforms").glob("*.yaml"))
    assert [platform.name for platform in catalog.platforms] == files


def test_every_part_has_a_lock_file_that_fits_it(catalog):
    folder = data_dir("toolchains")
    for kind in ("parts", "locks"):
        assert sorted(path.stem for path in (folder / kind).glob("*")) == sorted(catalog.parts)
    for name, named in catalog.parts.items():
        sources._require_fitting(named, read_lock(name))
        assert named.part.title
        assert named.part.debian or named.part.wheels


def test_every_debian_package_of_a_part_is_in_its_lock_file(catalog):
    for name, named in catalog.parts.items():
        lock = read_lock(name)
        for source in named.part.debian:
            files = lock.sources[f"debian/{source.suite}/{source.architecture}"]
            locked = {item.name for item in files}
            assert {*source.install, *source.alone} <= locked
            dropped = {one for pattern in source.drop for one in fnmatch.filter(locked, pattern)}
            assert dropped == set(), name


def test_every_part_is_used_by_a_platform(catalog):
    used = {part.name for platform in catalog.platforms for part in platform.toolchain.all} | {
        platform.toolchain.base.name for platform in catalog.platforms if platform.toolchain.base
    }
    used |= {part.name for platform in catalog.platforms for part in platform.toolchain.cuda_math}
    emulated = [platform.toolchain.emulated for platform in catalog.platforms]
    used |= {part.name for part in emulated if part}
    assert used == set(catalog.parts)


def test_a_part_says_what_its_kind_has_to(catalog):
    for named in catalog.parts.values():
        part = named.part
        assert (part.gcc is not None) == (part.kind == "compiler")
        assert bool(part.version) == (part.kind in ("cuda", "cuda_math"))
        assert bool(part.archs) == (part.kind == "cuda")
        assert bool(part.headers) == bool(part.libraries) == (part.kind == "cuda_math")
        assert (part.newest_gcc is not None) == (part.kind == "cuda")
        assert not part.build_constraints or part.kind == "torch"
        assert (part.machine is not None) == (part.kind in ("compiler", "cuda"))
        assert bool(part.glibc) == (part.kind == "sysroot")
        assert part.made_for or part.kind == "cuda_math"
        for arch in part.archs:
            Arch.parse(arch)


def test_a_platforms_parts_are_of_the_kind_that_it_names_them_for(catalog):
    for platform in catalog.platforms:
        parts = platform.toolchain
        for kind in ("compiler", "sysroot", "torch", "base"):
            named = getattr(parts, kind)
            assert named is None or (named.part.kind, catalog.parts[named.name]) == (kind, named)
        assert {toolkit.part.kind for toolkit in parts.cuda} <= {"cuda"}
        assert {one.part.kind for one in parts.cuda_math} <= {"cuda_math"}


def test_every_toolkit_out_of_wheels_has_its_math_libraries(catalog):
    for platform in catalog.platforms:
        parts = platform.toolchain
        bare = {toolkit.part.version for toolkit in parts.cuda if toolkit.part.wheels}
        for header in ("cublas_v2.h", "cusparse.h", "cusolverDn.h", "curand.h", "cufft.h"):
            having = [one.part.version for one in parts.cuda_math if one.part.has_header(header)]
            assert sorted(having) == sorted(bare), (platform.name, header)


def test_a_platforms_torch_and_python_are_those_of_its_parts(catalog):
    for platform in catalog.platforms:
        if platform.toolchain.torch is None:
            continue
        (source,) = platform.toolchain.torch.part.wheels
        assert (source.machine, source.abi) == (platform.machine, platform.python.abi)
        assert source.python.startswith(platform.python.version)
        name, _, version = source.requirements[0].partition("==")
        digits = 3 if platform.evidence == "exact" else 2
        asked = Version(platform.torch.version)
        assert name == "torch"
        assert Version(version).release[:digits] == asked.release[:digits]
        assert SpecifierSet(platform.torch.pinned[5:]).contains(asked, prereleases=True)


def test_no_platform_contradicts_its_parts(catalog):
    assert [row for platform in catalog.platforms for row in contradictions(platform)] == []


def test_no_board_is_offered_the_platforms_of_another_machine(catalog):
    for board in catalog.boards:
        machines = {catalog.platform(name).machine for name in board.platforms}
        assert machines == ({board.cpu} if board.cpu else {"aarch64", "x86_64"}), board.name
    arm = {board.name for board in catalog.boards if board.cpu and board.kind == "server"}
    assert arm == {"gh200", "gb200", "gb300", "gb10"}


def test_what_is_missing_of_a_platform_is_told_with_advice(catalog):
    for platform in catalog.platforms:
        parts = platform.toolchain
        for role in ("sysroot", "cuda", "torch"):
            assert getattr(parts, role) or role in parts.advice, (platform.name, role)
        assert parts.base or platform.kind == "server" or "base" in parts.advice


def test_no_compiler_of_a_platform_is_newer_than_its_nvcc_takes(catalog):
    pairs = [
        (platform.toolchain.compiler.part.gcc, toolkit.part.newest_gcc)
        for platform in catalog.platforms
        for toolkit in platform.toolchain.cuda
    ]
    assert pairs
    assert all(gcc <= newest for gcc, newest in pairs)


def test_a_compiler_asks_for_no_more_than_the_targets_libstdcxx_or_brings_it(catalog):
    newest = {9: "3.4.28", 10: "3.4.28", 11: "3.4.29", 12: "3.4.30"}
    for platform in catalog.platforms:
        parts = platform.toolchain
        fits = Version(newest[parts.compiler.part.gcc]) <= Version(platform.abi.glibcxx)
        assert fits != parts.own_templates


def test_every_arch_of_a_platform_is_made_by_one_of_its_toolkits(catalog):
    for platform in catalog.platforms:
        for arch in platform.cuda.drives:
            toolkits = platform.toolchain.cuda
            made = any(toolkit.part.makes({arch}) for toolkit in toolkits)
            assert made or not toolkits, (platform.name, arch)


def test_a_toolkit_is_of_the_platforms_major_release_and_not_newer_where_that_matters(catalog):
    for platform in catalog.platforms:
        for toolkit in platform.toolchain.cuda:
            major = toolkit.part.version.partition(".")[0]
            assert major == platform.cuda.version.partition(".")[0], platform.name


def test_every_jetson_platform_has_its_releases_and_each_is_in_one_only(catalog):
    jetsons = [platform for platform in catalog.platforms if platform.kind == "jetpack"]
    assert len(jetsons) >= 6
    for platform in catalog.platforms:
        assert bool(platform.jetpack) == bool(platform.l4t) == (platform in jetsons)
    for releases in ("jetpack", "l4t"):
        listed = [one for platform in jetsons for one in getattr(platform, releases)]
        assert len(listed) == len(set(listed))
    assert all(re.fullmatch(r"r[0-9.]+", one) for platform in jetsons for one in platform.l4t)
    assert all(Version(one) for platform in jetsons for one in platform.jetpack)


def test_the_releases_of_a_platform_are_named_in_its_title_and_in_order(catalog):
    for platform in catalog.platforms:
        for releases in (platform.jetpack, [one[1:] for one in platform.l4t]):
            assert list(releases) == sorted(releases, key=Version)
        if platform.kind == "jetpack":
            assert platform.name.removeprefix("jetpack-") in platform.title
            assert platform.l4t[0].partition(".")[0] in platform.title


def test_every_jetson_platform_says_how_a_container_reaches_the_gpu(catalog):
    for platform in catalog.platforms:
        line = catalog.devices_on(platform)
        assert (line is not None) == (platform.kind == "jetpack")
        assert line is None or all(
            other.l4t == line.l4t or not platform.l4t[-1].startswith(other.l4t)
            for other in catalog.device_lines
        )


def test_a_boards_platforms_exist_and_drive_it(catalog):
    for board in catalog.boards:
        assert board.platforms
        for name in board.platforms:
            platform = catalog.platform(name)
            assert Arch.parse(board.arch) in platform.cuda.drives
            assert platform.kind == {"jetson": "jetpack", "server": "server"}[board.kind]
        names = [
            platform.name for platform in catalog.platforms if platform.name in board.platforms
        ]
        assert list(board.platforms) == names, "they are in the order of the catalog"


def test_every_platform_but_emulation_runs_on_a_board_for_each_of_its_archs(catalog):
    jetsons = {board.arch for board in catalog.boards if board.kind == "jetson"}
    for platform in catalog.platforms:
        carried = {board.arch for board in catalog.boards if platform.name in board.platforms}
        for_ci = jetsons - carried if platform.kind == "server" else set()
        assert (carried == set(platform.cuda.archs) - for_ci) == (platform.kind != "emulation")


def test_names_and_aliases_of_boards_are_unique(catalog):
    names = [name for board in catalog.boards for name in (board.name, *board.aliases)]
    assert len(names) == len(set(names))
    for board in catalog.boards:
        assert all(catalog.board(name) is board for name in (board.name, *board.aliases))


def test_every_fact_says_where_it_was_read(catalog):
    for platform in catalog.platforms:
        for facts in (platform.cuda, platform.python, platform.abi, platform.torch):
            assert facts.source
    assert all(row.source for row in (*catalog.boards, *catalog.archs))


def test_every_arch_of_a_board_or_platform_is_known_by_its_family(catalog):
    assert all(catalog.arch_facts(Arch.parse(board.arch)) for board in catalog.boards)
    listed = [row.arch for row in catalog.archs]
    assert listed == [str(arch) for arch in sorted(map(Arch.parse, set(listed)))]


def test_no_platform_makes_what_its_cuda_no_longer_compiles_for(catalog):
    for platform in catalog.platforms:
        for arch in platform.cuda.drives:
            known = catalog.arch_facts(arch)
            last = known.last_cuda if known else ""
            assert not last or Version(platform.cuda.version) <= Version(last)


def test_versions_that_look_like_numbers_stay_text(catalog):
    assert catalog.platform("jetpack-6.2").python.version == "3.10"
    assert catalog.platform("jetpack-4.6").cuda.version == "10.2"


def test_a_soname_of_libcudart_is_one_for_all_of_a_major_release(catalog):
    sonames = {platform.name: platform.cuda.runtime_soname for platform in catalog.platforms}
    assert sonames["jetpack-4.6"] == "libcudart.so.10.2"
    assert sonames["jetpack-5.1"] == sonames["debian-12"] == "libcudart.so.11.0"
    assert sonames["jetpack-6.2"] == "libcudart.so.12"
    assert sonames["jetpack-7.2"] == "libcudart.so.13"


@pytest.mark.parametrize("key", ["compiler", "sysroot", "torch", "base"])
def test_a_platform_that_names_no_part_is_told_the_nearest_with_its_place(folder, key):
    path = folder / "platforms/debian-12.yaml"
    text = re.sub(rf"(?m)^  {key}: (.*)$", rf"  {key}: \1x", path.read_text())
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"debian-12\.yaml:\d+:\d+.*is not known") as caught:
        Catalog.load(folder)
    assert "did you mean" in str(caught.value)


def test_a_platform_that_names_a_part_of_another_kind_is_refused(folder):
    path = folder / "platforms/debian-12.yaml"
    path.write_text(path.read_text().replace("compiler: gcc-11", "compiler: cuda-11.8"))
    with pytest.raises(ConfigError, match=r"part 'cuda-11\.8' is of kind cuda, not compiler"):
        Catalog.load(folder)


@pytest.mark.parametrize(
    ("name", "board"),
    [
        ("tx2", "tx2"),
        ("jetson-tx2", "tx2"),
        ("orin-nano", "orin"),
        ("TX2", "tx2"),
        ("Jetson Orin Nano", "orin"),
        ("jetson-orin", "orin"),
    ],
)
def test_a_board_has_several_names(catalog, name, board):
    assert catalog.board(name).name == board


@pytest.mark.parametrize(("name", "near"), [("tx3", "tx2"), ("xavierr", "xavier")])
def test_an_unknown_board_gets_the_nearest_and_all_known(catalog, name, near):
    with pytest.raises(ConfigError, match=f"board '{name}' is not known") as caught:
        catalog.board(name)
    assert caught.value.fix.startswith(
        f"did you mean '{near}'? known boards: nano (jetson-nano), tx1"
    )


@pytest.mark.parametrize(
    ("release", "platform"),
    [("r36.4.3", "jetpack-6.2"), ("36.4.3", "jetpack-6.2"), ("L4T r35.4.1", "jetpack-5.1"),
     ("JetPack 6.2", "jetpack-6.2"), ("4.6.1", "jetpack-4.6"), ("5.1.2", "jetpack-5.1"),
     ("6.0", "jetpack-6.0"),
     ("4.2.1", "jetpack-4.2"), ("4.3", "jetpack-4.2"), ("r32.1", "jetpack-4.2"),
     ("r32.2", "jetpack-4.2"), ("r32.5", "jetpack-4.4"), ("4.5", "jetpack-4.4"),
     ("32.7", "jetpack-4.6"), ("r36.3", "jetpack-6.0"), ("r35", "jetpack-5.1"),
     ("6.1", "jetpack-6.2"), ("7.1", "jetpack-7.0"), ("7.2", "jetpack-7.2"),
     ("5", "jetpack-5.1"), ("JetPack 5", "jetpack-5.1"),
     ("# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref", "jetpack-5.1")],
)  # fmt: skip
def test_a_jetpack_release_is_a_platform(catalog, release, platform):
    assert catalog.platform_of_jetpack(release).name == platform


@pytest.mark.parametrize(
    ("release", "near"),
    [
        ("5.1.9", "5.1.6"),
        ("4.1", "4.2"),
        ("6.3", "6.2.2"),
        ("9", "7.2"),
        ("5.0", "5.0.2"),
        ("5.0.1", "5.0.2"),
        ("3.2", "4.2"),
    ],
)
def test_an_unknown_jetpack_names_the_nearest_and_those_of_its_line(catalog, release, near):
    with pytest.raises(ConfigError, match=f"JetPack {release} is not known") as caught:
        catalog.platform_of_jetpack(release)
    platform = catalog.platform_of_jetpack(near).name
    major = near.partition(".")[0]
    known = f"the nearest known one is {near} ({platform}); known of JetPack {major}: {major}."
    assert caught.value.fix.startswith(known)


@pytest.mark.parametrize(
    ("release", "near"),
    [("r36.5.2", "r36.5.0"), ("r37", "r36.5.0"), ("r34.1.1", "r35.1.0"), ("r28.2", "r32.1.0"),
     ("r36.2.0", "r36.3.0")],
)  # fmt: skip
def test_an_unknown_l4t_names_the_nearest(catalog, release, near):
    with pytest.raises(ConfigError, match=f"L4T {release} is not known") as caught:
        catalog.platform_of_jetpack(release)
    assert f"the nearest known one is {near} (jetpack-" in caught.value.fix


@pytest.mark.parametrize(
    ("line", "some", "example"),
    [("r32", "jetpack-4.2", "r32.7.6"), ("36", "jetpack-6.0", "r36.5.0"),
     ("6", "jetpack-6.0", "6.2.2"), ("JetPack 7", "jetpack-7.0", "7.2")],
)  # fmt: skip
def test_a_line_of_releases_that_is_several_platforms_is_no_answer(catalog, line, some, example):
    with pytest.raises(ConfigError, match=f"{line} is of several platforms: {some}, ") as caught:
        catalog.platform_of_jetpack(line)
    assert f"such as {example}, or the platform" in caught.value.fix


@pytest.mark.parametrize("release", ["r32.6.2", "r3", "r32.", "r99"])
def test_a_part_of_a_number_is_no_line_of_releases(catalog, release):
    with pytest.raises(ConfigError, match=f"L4T {re.escape(release)} is not known"):
        catalog.platform_of_jetpack(release)


def test_a_superseded_platform_names_another_that_runs_on_all_its_boards(catalog):
    old = [platform for platform in catalog.platforms if platform.superseded_by]
    assert [platform.name for platform in old] == ["jetpack-4.2", "jetpack-4.4"]
    for platform in old:
        for board in catalog.boards:
            if platform.name in board.platforms:
                assert platform.superseded_by in board.platforms, board.name


def test_a_jetpack_like_no_other_gets_no_suggestion(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.platform_of_jetpack("zzz")
    assert caught.value.fix.startswith("known releases:")


def test_the_boards_of_an_arch(catalog):
    assert [board.name for board in catalog.boards_of(Arch(6, 2))] == ["tx2"]
    assert [board.name for board in catalog.boards_of(Arch(5, 3))] == ["nano", "tx1"]
    assert catalog.boards_of(Arch(1, 0)) == ()


def test_a_platform_knows_how_a_container_reaches_its_gpu(catalog):
    platform = catalog.platform("jetpack-4.6")
    line = catalog.devices_on(platform)
    assert line is not None
    assert line.l4t == "r32"
    assert catalog.devices_on(platform.model_copy(update={"l4t": ("r1.0",)})) is None
    assert catalog.devices_on(catalog.platform("debian-12")) is None


@pytest.mark.parametrize("name", ["debian12", "debain-12", "debian_12"])
def test_an_unknown_platform_gets_the_nearest_and_all_known(catalog, name):
    with pytest.raises(ConfigError, match=f"platform '{name}' is not known") as caught:
        catalog.platform(name)
    assert caught.value.fix.startswith("did you mean 'debian-12'? known platforms: debian-11")


def test_a_platform_like_no_other_gets_no_suggestion(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.platform("zzz")
    assert caught.value.fix.startswith("known platforms:")


def test_a_copy_of_the_data_is_read_the_same(catalog, folder):
    copy = Catalog.load(folder)
    assert copy.boards == catalog.boards
    assert (copy.device_lines, copy.archs) == (catalog.device_lines, catalog.archs)
    # A part knows its file, which is another one here.
    assert [one.model_dump() for one in copy.platforms] == [
        one.model_dump() for one in catalog.platforms
    ]
    assert {name: one.part for name, one in copy.parts.items()} == {
        name: one.part for name, one in catalog.parts.items()
    }
    assert all(one.file.is_relative_to(folder) for one in copy.parts.values())


def test_a_platform_file_with_a_wrong_key_is_named_with_its_place(folder):
    path = folder / "platforms/debian-12.yaml"
    path.write_text(path.read_text().replace("machine: aarch64", "machin: aarch64", 1))
    with pytest.raises(ConfigError) as caught:
        Catalog.load(folder)
    assert "unknown key 'machin'; did you mean 'machine'?" in str(caught.value)
    assert "debian-12.yaml:" in str(caught.value)


def test_a_missing_file_is_named(folder):
    (folder / "devices.yaml").unlink()
    with pytest.raises(ConfigError, match=r"devices\.yaml does not exist"):
        Catalog.load(folder)


@pytest.mark.parametrize("release", ["r36.9.9", "36.9.9", "r37"])
def test_an_unknown_l4t_is_told_with_all_known(catalog, release):
    with pytest.raises(ConfigError, match="L4T r3") as caught:
        catalog.platform_of_jetpack(release)
    assert "r36.4.3" in caught.value.fix


def test_a_number_that_is_no_jetpack_is_not_called_an_l4t_alone(catalog):
    with pytest.raises(ConfigError, match="JetPack 99 is not known, and no L4T r99 either"):
        catalog.platform_of_jetpack("99")
