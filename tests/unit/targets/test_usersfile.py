"""The user's own boards, platforms and parts: what they add, what they replace, what is wrong."""

from pathlib import Path

import pytest
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import load_deployment, targets_file_of
from jetship.targets.resolve import resolve, resolve_id

PART = """\
parts:
  torch-mine:
    kind: torch
    title: my own torch
    wheels: [{machine: aarch64, requirements: [torch==2.6.0]}]
"""
PLATFORM = """\
platforms:
  - name: mine-1.0
    title: My userland
    kind: jetpack
    machine: aarch64
    jetpack: [9.9]
    cuda: {version: 11.8, archs: [6.2, 8.7], source: mine}
    python: {version: 3.11, abi: cp311, source: mine}
    abi: {glibc: 2.36, glibcxx: 3.4.30, cxxabi: 1.3.13, gcc: 12.0.0, source: mine}
    torch: {version: 2.6.0, cuda: 11.8, cxx11_abi: true, source: mine}
    toolchain: {compiler: gcc-11, sysroot: sysroot-bookworm, cuda: [cuda-11.8], torch: torch-mine}
"""
BOARD = """\
boards:
  - {name: my-board, title: My board, arch: 6.2, kind: jetson, platforms: [mine-1.0], source: mine}
"""
ALL = PART + PLATFORM + BOARD


@pytest.fixture
def load(tmp_path):
    def write(text: str) -> Catalog:
        path = tmp_path / "my-boards.yaml"
        path.write_text(text)
        return Catalog.load(extra=path)

    return write


def test_what_the_user_adds_stands_beside_what_is_shipped(load, catalog, tmp_path):
    found = load(ALL)
    assert found.replaced == ()
    assert {one.name for one in found.platforms} == {
        "mine-1.0",
        *(one.name for one in catalog.platforms),
    }
    (target,) = resolve(found, board="my-board")
    assert target.id == "sm62-mine-1.0"
    assert resolve_id(found, target.id) == target
    torch = target.platform.toolchain.torch
    assert torch.is_users
    assert (torch.file, torch.folder) == (tmp_path / "my-boards.yaml", tmp_path)
    assert torch.pins_command.endswith(f"--part torch-mine --targets-file {torch.file}")
    compiler = target.platform.toolchain.compiler
    assert not compiler.is_users
    assert compiler.folder == data_dir("toolchains")
    assert compiler.pins_command == "invoke pins --part gcc-11"


@pytest.mark.parametrize("text", ["", PART, PART + PLATFORM, "boards: []\n"])
def test_every_section_may_be_missing(load, catalog, text):
    assert len(load(text).boards) == len(catalog.boards)


def test_the_users_platform_takes_the_place_of_the_shipped_one(load, catalog):
    text = PLATFORM.replace("mine-1.0", "jetpack-5.1").replace("6.2, 8.7", "7.2, 8.7")
    found = load(PART + text)
    assert found.replaced == ("platform jetpack-5.1",)
    assert found.platform("jetpack-5.1").title == "My userland"
    assert [one.name for one in found.platforms] == [one.name for one in catalog.platforms]


def test_the_users_board_takes_the_place_of_the_shipped_one(load):
    found = load(ALL.replace("name: my-board", "name: tx2"))
    assert found.replaced == ("board tx2",)
    assert found.board("tx2").title == "My board"
    assert [one.name for one in found.boards_of(Arch(6, 2))] == ["tx2"]


def test_the_users_part_serves_shipped_platforms_too(load):
    found = load(PART.replace("torch-mine", "torch-2.7.1-cp311").replace("2.6.0", "2.7.1"))
    assert found.replaced == ("part torch-2.7.1-cp311",)
    assert found.platform("debian-12").toolchain.torch.part.title == "my own torch"
    assert found.part("torch-2.7.1-cp311").is_users


def test_a_release_that_two_platforms_have_is_the_users(load):
    found = load(PART + PLATFORM.replace("9.9", "5.1.2"))
    assert found.platform_of_jetpack("5.1.2").name == "mine-1.0"
    assert found.platform_of_jetpack("5.1.1").name == "jetpack-5.1"


WRONG = {
    "a compiler": (
        ("compiler: gcc-11", "compiler: gcc-111"),
        "16:17: platforms.0.toolchain.compiler: part 'gcc-111' is not known; did you mean",
    ),
    "a toolkit": (
        ("[cuda-11.8]", "[cuda-11.8, cuda-11.9]"),
        "part 'cuda-11.9' is not known; did you mean 'cuda-11.8'?",
    ),
    "another kind": (
        ("torch: torch-mine", "torch: gcc-11"),
        "part 'gcc-11' is of kind compiler, not torch",
    ),
    "a part that is no name": (("torch: torch-mine", "torch: [x]"), "is not known"),
    "a platform": (
        ("platforms: [mine-1.0]", "platforms: [mine-1.0, jetpak-5.1]"),
        "18:86: platform 'jetpak-5.1' is not known; did you mean 'jetpack-5.1'?",
    ),
    "an arch that is not driven": (
        ("arch: 6.2, kind", "arch: 7.2, kind"),
        "mine-1.0 does not drive 7.2, the arch of the board 'my-board': its cuda.archs are 6.2, ",
    ),
    "an arch that no toolkit makes": (
        ("archs: [6.2, 8.7]", "archs: [6.2, 8.7, 11.0]"),
        "12:27: none of its CUDA toolkits compiles for 11.0: cuda-11.8",
    ),
    "a name for files": (("torch-mine:", "../torch:"), "'../torch' does not have the form"),
    "a name for targets": (
        ("name: mine-1.0", "name: My_Platform"),
        "'My_Platform' does not have the form",
    ),
    "a number for an arch": (
        ("archs: [6.2, 8.7]", "archs: [6.2, 7]"),
        "platforms.0.cuda.archs.1: '7' is not a compute capability",
    ),
    "an arch of a board": (("arch: 6.2, kind", "arch: 62, kind"), "'62' is not a compute capabil"),
    "another ABI": (
        ("abi: cp311", "abi: cp310"),
        "13:29: platforms.0.python.abi: Python 3.11 has the ABI cp311",
    ),
    "a Python that lost its zero": (
        ("version: 3.11, abi: cp311", "version: 3.1, abi: cp310"),
        "no torch is for Python 3.1; did you mean 3.10?",
    ),
    "a patch release": (("version: 3.11,", "version: 3.11.2,"), "'3.11.2' is not a release of P"),
    "a Python that the torch is not for": (
        ("version: 3.11, abi: cp311", "version: 3.10, abi: cp310"),
        "part torch-mine is for cp311, and the platform's Python is cp310",
    ),
    "another torch": (
        ("torch: {version: 2.6.0", "torch: {version: 2.7.0"),
        "part torch-mine is torch 2.6.0, and the platform's is 2.7.0",
    ),
    "another glibc": (
        ("glibc: 2.36", "glibc: 2.31"),
        "16:35: part sysroot-bookworm has glibc 2.36, and the platform 2.31: name one",
    ),
    "another CUDA": (
        ("cuda: {version: 11.8", "cuda: {version: 12.4"),
        "part cuda-11.8 is CUDA 11.8, and the platform's is 12.4",
    ),
    "a compiler for another machine": (
        ("compiler: gcc-11", "compiler: gcc-12-x86-64"),
        "16:17: part gcc-12-x86-64 is for x86_64, and the platform is aarch64",
    ),
    "a torch for another machine": (
        ("machine: aarch64, req", "machine: x86_64, req"),
        "part torch-mine is for x86_64",
    ),
    "a board of another machine": (
        ("platforms: [mine-1.0]", "platforms: [x86-64-cuda-13.0]"),
        "x86-64-cuda-13.0 is for x86_64, and My board is aarch64",
    ),
    "a Jetson of another machine": (
        ("kind: jetson", "kind: jetson, machine: x86_64"),
        "every Jetson is aarch64",
    ),
    "an arch": (("archs: [6.2, 8.7]", "archs: [6.2.2]"), "'6.2.2' is not a compute capability"),
}


@pytest.mark.parametrize(("change", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named_with_its_place(load, tmp_path, change, said):
    with pytest.raises(ConfigError) as caught:
        load(ALL.replace(*change, 1))
    assert said in str(caught.value)
    assert f"{tmp_path}/my-boards.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        (("glibc: 2.36", "glibc: 2.31")),
        (("torch: {version: 2.6.0", "torch: {version: 2.6.1a0+nv25")),
        (("cuda: {version: 11.8", "cuda: {version: 11.4")),
    ],
    ids=" ".join,
)
def test_derived_evidence_allows_what_is_near(load, change):
    text = ALL.replace("    jetpack: [9.9]", "    jetpack: [9.9]\n    evidence: derived")
    assert load(text.replace(*change, 1)).platform("mine-1.0").evidence == "derived"


def test_a_part_that_a_shipped_platform_contradicts_is_told_at_the_part(load):
    with pytest.raises(ConfigError, match=r"my-boards\.yaml:2:3: part torch-2.7.1-cp311 is torch"):
        load(PART.replace("torch-mine", "torch-2.7.1-cp311"))


def test_all_problems_are_told_at_once(load):
    text = ALL.replace("title: My userland", "titel: My userland").replace("kind: torch", "kind: x")
    with pytest.raises(ConfigError) as caught:
        load(text.replace("sysroot-bookworm", "sysroot-x"))
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("my-boards.yaml has 4 problems")
    assert "3:5: parts.torch-mine.kind" in lines[1]
    assert any("unknown key 'platforms.0.titel'; did you mean 'title'?" in line for line in lines)
    assert any("key 'platforms.0.title' is missing" in line for line in lines)
    assert any("part 'sysroot-x' is not known" in line for line in lines)
    # Not once more where the platform names it.
    assert not any("torch-mine' is" in line for line in lines)


def test_all_that_does_not_fit_is_told_at_once(load):
    text = ALL.replace("[mine-1.0]", "[none, mine-1.0]").replace(
        "arch: 6.2, kind", "arch: 7.2, kind"
    )
    with pytest.raises(ConfigError, match="has 2 problems"):
        load(text)


def test_unknown_platforms_of_boards_are_told_beside_wrong_keys(load):
    text = ALL.replace("title: My userland", "titel: My userland")
    text = text.replace("[mine-1.0]", "[mine-1.0, jetpack-5.1, jetpak-6.2]")
    with pytest.raises(ConfigError) as caught:
        load(text)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("my-boards.yaml has 3 problems")
    assert "'platforms.0.title' is missing" in lines[1] + lines[2]
    assert "18:99: platform 'jetpak-6.2' is not known; did you mean 'jetpack-6.2'?" in lines[3]


@pytest.mark.parametrize(
    "boards",
    ["boards: 1", "boards: [1]", "boards: [{platforms: x}]", "boards: [{platforms: [1, []]}]"],
)
def test_boards_that_are_no_boards_are_told_as_such(load, boards):
    with pytest.raises(ConfigError, match=r"my-boards\.yaml"):
        load(f"{PART}{boards}\n")


@pytest.mark.parametrize("section", [PLATFORM, BOARD], ids=["platforms", "boards"])
def test_a_name_that_is_given_twice_is_refused(load, section):
    rows = section.partition("\n")[2]
    with pytest.raises(ConfigError, match="is described twice"):
        load(ALL.replace(rows, rows + rows))


def test_a_platform_that_takes_the_arch_of_a_shipped_board_away_is_refused(load, tmp_path):
    text = PLATFORM.replace("mine-1.0", "jetpack-4.6")
    with pytest.raises(ConfigError) as caught:
        load(PART + text)
    assert f"{tmp_path}/my-boards.yaml:12:27" in str(caught.value)
    assert "the board 'nano'" in str(caught.value)
    assert "describe that board as well" in str(caught.value)


def test_the_shipped_data_is_held_to_the_same(tmp_path):
    folder = tmp_path / "toolchains"
    folder.mkdir()
    for entry in data_dir("toolchains").iterdir():
        (folder / entry.name).symlink_to(entry)
    (folder / "boards.yaml").unlink()
    text = (data_dir("toolchains") / "boards.yaml").read_text()
    (folder / "boards.yaml").write_text(text.replace("jetpack-4.6]", "jetpack-4.5]", 1))
    with pytest.raises(ConfigError, match=r"boards\.yaml:\d+:43: platform 'jetpack-4.5' is not"):
        Catalog.load(folder)


def test_a_file_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        Catalog.load(extra=tmp_path / "none.yaml")


DEPLOY = """\
version: 1
project: .
targets: [{arch: 6.2, platform: mine-1.0}]
image: {repository: acme/ops, smoke: [python3, -c, pass]}
"""


def test_deploy_yaml_names_the_users_file_beside_it(tmp_path):
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(DEPLOY + "targets_file: my-boards.yaml\n")
    (tmp_path / "my-boards.yaml").write_text(ALL)
    extra = targets_file_of(deploy)
    assert extra == tmp_path / "my-boards.yaml"
    catalog = Catalog.load(extra=extra)
    (target,) = load_deployment(deploy, catalog).resolve_targets(catalog)
    assert target.id == "sm62-mine-1.0"


def test_deploy_yaml_that_names_no_file_of_the_users(tmp_path):
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(DEPLOY)
    assert targets_file_of(deploy) is None


@pytest.mark.parametrize("name", ["none.yaml", "[a, b]"])
def test_deploy_yaml_that_names_a_missing_file(tmp_path, name):
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(DEPLOY + f"targets_file: {name}\n")
    with pytest.raises(ConfigError, match=r"deploy\.yaml:5:1: there is no file"):
        targets_file_of(deploy)


def test_a_relative_file_keeps_its_locks_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my-boards.yaml").write_text(ALL)
    part = Catalog.load(extra=Path("my-boards.yaml")).part("torch-mine")
    assert part.is_users
    assert part.folder.resolve() == tmp_path


REPOSITORIES = """\
parts:
  sysroot-mine:
    kind: sysroot
    title: mine
    apt:
      - architecture: arm64
        repositories:
          - {suites: [bookworm]}
          - {name: l4t, uri: "https://repo.example/common", suites: [r36.4, r36.5], signed_by: keys/l4t.gpg}
        install: [nvidia-l4t-core]
"""  # noqa: E501


@pytest.fixture
def key(tmp_path) -> Path:
    path = tmp_path / "keys/l4t.gpg"
    path.parent.mkdir()
    path.write_bytes(b"\x99\x01\x0d\x04rest")
    return path


def test_a_part_takes_packages_from_any_repositories(load, key):
    (source,) = load(REPOSITORIES).part("sysroot-mine").part.sources
    assert source.lock_name == "apt/debian-bookworm+l4t-r36.4+l4t-r36.5/arm64"
    assert source.repositories[1].signed_by == key
    assert [one.title for one in source.repositories] == ["Debian bookworm", "l4t r36.4, r36.5"]


REPOSITORY_ROWS = "".join(REPOSITORIES.splitlines(keepends=True)[7:9])
L4T = 'name: l4t, uri: "https://repo.example/common", suites: [r36.4, r36.5]'
WRONG_REPOSITORIES = {
    "no key": ((", signed_by: keys/l4t.gpg", ""), "9:13: .*'l4t' has no signed_by: .* on trust"),
    "no address": ((' uri: "https://repo.example/common",', ""), "9:13: .*'l4t' has no uri"),
    "a key that is not there": (("keys/l4t.gpg", "l4t.gpg"), "9:85: .*cannot be read"),
    "no suite": (("[r36.4, r36.5]", "[]"), "'l4t' has no suite"),
    "a folder with components": (
        ("[r36.4, r36.5]", "[./], components: [main]"), "a folder, which has no components"
    ),
    "folders and suites": (("[r36.4, r36.5]", "[./, r36.5]"), "make two repositories"),
    "a login": (("https://", "https://me:secret@"), r"9:25: .*auth\.conf"),
    "another protocol": (("https://", "ftp://"), "9:25: .*is not the address of a repository"),
    "a relative file": (("https://repo.example", "file:repo"), "is not the address"),
    "a second line": (("/common", r"/common\nTrusted: yes"), "is not the address"),
    "an option as a suite": (("[r36.4, r36.5]", '["[trusted=yes]"]'), "does not have the form"),
    "a setting as a component": (
        ("[r36.4, r36.5]", r'[r36.4], components: ["main\nTrusted: yes"]'), "does not have the form"
    ),
    "no repositories": ((REPOSITORY_ROWS, "          []\n"), "no repository is named"),
    "no packages": (("[nvidia-l4t-core]", "[]"), "no package is named"),
    "one name for two": (("{suites: [bookworm]}", "{" + L4T + ", signed_by: keys/l4t.gpg}"),
                         "two repositories are called l4t-r36.4"),
    "a word of apt's own": (("signed_by:", "signed-by:"), "did you mean 'signed_by'"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), WRONG_REPOSITORIES.values(), ids=WRONG_REPOSITORIES)
def test_a_repository_that_is_wrongly_described(load, key, change, said):
    with pytest.raises(ConfigError, match=said) as caught:
        load(REPOSITORIES.replace(*change, 1))
    assert "my-boards.yaml:" in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("suite", ["", "./", "bookworm/", "book worm", "[trusted=yes]"])
def test_what_is_no_suite_of_debian_is_refused(load, suite):
    text = f"""\
parts:
  mine:
    kind: sysroot
    title: mine
    debian: [{{suite: "{suite}", architecture: arm64, install: [a]}}]
"""
    with pytest.raises(ConfigError, match=r"5:15: parts\.mine\.debian\.0\.suite: .* form"):
        load(text)


def test_two_sources_with_one_name_in_the_lock_file_are_refused(load, key):
    text = REPOSITORIES.replace("    apt:", """\
    debian:
      - {suite: bookworm, architecture: arm64, install: [a]}
      - {suite: bookworm, architecture: arm64, install: [b], components: [contrib]}
    apt:""")  # fmt: skip
    with pytest.raises(ConfigError, match="two sources are both debian/bookworm/arm64"):
        load(text)
