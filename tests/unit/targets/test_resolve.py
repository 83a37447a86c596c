import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.resolve import DEFAULT_PLATFORM, resolve, resolve_id


@pytest.mark.parametrize(
    ("arch", "lists"),
    [
        ("6.2", ["6.2"]),
        ("sm_62", ["6.2"]),
        ("6.2+PTX", ["6.2+PTX"]),
        ("6.2,7.2", ["6.2", "7.2"]),
        ("6.2;7.2", ["6.2", "7.2"]),
        ("6.2 7.2", ["6.2", "7.2"]),
        ("6.2, 7.2+PTX", ["6.2", "7.2+PTX"]),
        ("  7.2 ;  6.2 ", ["7.2", "6.2"]),
        ("6.2\n7.2\t8.7", ["6.2", "7.2", "8.7"]),
        ("9.0", ["9.0"]),
    ],
)
def test_good_requests_are_one_target_an_arch_in_their_order(catalog, arch, lists):
    targets = resolve(catalog, arch=arch)
    assert [target.arch_list for target in targets] == lists
    assert {target.platform.name for target in targets} == {DEFAULT_PLATFORM}


def test_a_fat_request_is_one_target_with_its_archs_in_order(catalog):
    (target,) = resolve(catalog, arch="8.7+PTX,6.2;7.2", fat=True)
    assert target.arch_list == "6.2;7.2;8.7+PTX"
    assert target.id == "sm62.sm72.sm87ptx-debian-12"


# Each wrong request with words that its message has and no other one has.
WRONG = {
    "6.3": "--arch entry 1: no GPU of compute capability 6.3 is known",
    "sm62": "did you mean 6.2?",
    "All": "never for whatever a list happens to hold",
    "": "--arch is empty",
    "Pascal": "Pascal alone has 6.0, 6.1 and 6.2",
    "6.2,,7.2": "has an empty entry at position 2",
    "6.2;": "--arch '6.2;' has an empty entry at position 2",
    "11.0": "CUDA 11.8 of debian-12 drives no GPU of compute capability 11.0",
    "6.2,6.2": "--arch names 6.2 more than once",
    "6.2+ptx": "did you mean 6.2+PTX?",
    "xavier": "xavier is a board",
    "+PTX6.2": "it is written as MAJOR.MINOR, with +PTX behind it to add PTX",
    "10.1": "CUDA 12.8 and 12.9 called the Thor GPU 10.1; CUDA 13 calls it 11.0",
}


@pytest.mark.parametrize(("arch", "words"), WRONG.items())
def test_a_wrong_request_is_told_in_its_own_sentence_and_what_to_do(catalog, arch, words):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch=arch)
    assert words in str(caught.value)
    assert caught.value.fix


def test_no_two_wrong_requests_are_told_the_same(catalog):
    said = {}
    for arch in WRONG:
        with pytest.raises(ConfigError) as caught:
            resolve(catalog, arch=arch)
        said[arch] = f"{caught.value.what} {caught.value.why}"
    assert all(said[one] != said[other] for one, other in itertools.combinations(said, 2))


@pytest.mark.parametrize(
    ("arch", "words"),
    [
        ("   ", "--arch is empty"),
        (",", "empty entry at position 1"),
        (",6.2", "empty entry at position 1"),
        ("6.2 , ; 7.2", "empty entry at position 2"),
        ("7.2,sm62", "--arch entry 2: 'sm62' is not a compute capability"),
        ("compute_62", "did you mean 6.2?"),
        ("SM-110", "did you mean 11.0?"),
        ("7.2+PXT", "did you mean 7.2+PTX?"),
        ("Jetson-Orin", "--board orin"),
        ("volta", "family names do not say which GPU"),
        ("8.7,9.9,6.2x", "entry 2: no GPU of compute capability 9.9 is known; --arch entry 3: '6"),
        ("native", "a wheel is built for named targets"),
        ("6.2 6.2+PTX", "--arch names 6.2 more than once"),
        ("06.2,6.2", "--arch names 6.2 more than once"),
        ("7.2,6.2,7.2,6.2", "--arch names 6.2, 7.2 more than once"),
        ("10.5", "no GPU of compute capability 10.5 is known"),
        ("6,2", "--arch entry 1: '6' is not a compute capability"),
        ("6.2:7.2", "character 4, ':', does not belong there"),
        ("6.2/7.2", "character 4, '/', does not belong there"),
        ("7.2 6.2\u00d7", "--arch entry 2: '6.2\u00d7' is not a compute capability"),
        ("7.2 6.2\u00d7", "character 4, '\u00d7', does not belong there"),
        ("\u0666\u0662", "character 1, '\u0666', does not belong there"),
    ],
)
def test_more_wrong_requests(catalog, arch, words):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch=arch, fat=True)
    assert words in str(caught.value)


@pytest.mark.parametrize("arch", ["sm62", "6.3"])
def test_a_wrong_arch_is_told_what_the_platform_can_make_for_which_board(catalog, arch):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch=arch)
    assert "debian-12 can make: 5.3 (Jetson Nano; Jetson TX1), 6.2 (Jetson TX2)" in caught.value.fix
    assert "Thor" not in caught.value.fix


def test_an_arch_that_the_platform_cannot_make_is_told_which_it_can(catalog):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch="11.0")
    assert "Jetson Thor (11.0): its platforms are jetpack-7.0, jetpack-7.2" in caught.value.why
    assert "CUDA 11.8 has no sm_110: of jetship's toolkits, 13.0 is the first" in caught.value.why
    assert "8.7" in caught.value.fix
    assert "invoke targets" in caught.value.fix


def test_an_arch_that_no_listed_board_has_but_nvcc_makes_is_built(catalog):
    assert resolve(catalog, arch="6.1")[0].id == "sm61-debian-12"


def test_the_variable_that_has_a_wrong_arch_is_named(catalog):
    for arch in ("sm62", "6.2,,7.2", "6.2,6.2", " "):
        with pytest.raises(ConfigError, match=r"^TORCH_CUDA_ARCH_LIST ") as caught:
            resolve(catalog, arch=arch, said="TORCH_CUDA_ARCH_LIST")
        assert "--arch entry" not in str(caught.value)


@pytest.mark.parametrize("release", ["4.2", "4.3", "4.5.1", "4.6.6"])
def test_a_tx1_has_the_releases_of_a_nano(catalog, release):
    targets = [resolve(catalog, board=board, jetpack=release)[0].id for board in ("tx1", "nano")]
    assert targets[0] == targets[1]


def test_an_unknown_platform_is_told_the_nearest(catalog):
    with pytest.raises(ConfigError, match="platform 'debian12' is not known") as caught:
        resolve(catalog, arch="6.2", platform="debian12")
    assert "did you mean 'debian-12'?" in caught.value.fix


@pytest.mark.parametrize(
    ("words", "platform", "ids"),
    [
        ({"board": "tx2"}, "jetpack-4.6", "sm62"),
        ({"board": "jetson-nano"}, "jetpack-4.6", "sm53"),
        ({"board": "tx2", "arch": "6.2+PTX"}, "jetpack-4.6", "sm62ptx"),
        ({"board": "tx2", "platform": "debian-12"}, "debian-12", "sm62"),
        ({"board": "tx2", "jetpack": "4.5.1"}, "jetpack-4.4", "sm62"),
        ({"board": "nano", "jetpack": "r32.2"}, "jetpack-4.2", "sm53"),
        ({"arch": "8.7", "platform": "debian-13"}, "debian-13", "sm87"),
        ({"board": "v100", "platform": "x86-64-cuda-12.4"}, "x86-64-cuda-12.4", "sm70"),
        ({"board": "orin", "platform": "jetpack-6.2"}, "jetpack-6.2", "sm87"),
        ({"board": "orin", "jetpack": "6.1"}, "jetpack-6.2", "sm87"),
        ({"board": "xavier", "jetpack": "5.1.2", "platform": "jetpack-5.1"}, "jetpack-5.1", "sm72"),
        ({"arch": "8.7", "jetpack": "6.0"}, "jetpack-6.0", "sm87"),
        ({"arch": "7.2,8.7", "jetpack": "5.1", "fat": True}, "jetpack-5.1", "sm72.sm87"),
        ({"arch": "11.0", "jetpack": "7.1"}, "jetpack-7.0", "sm110"),
    ],
)
def test_a_board_and_a_release_are_a_target(catalog, words, platform, ids):
    (target,) = resolve(catalog, **words)
    assert target.id == f"{ids}-{platform}"


# Each impossible request with all that its message has to say.
IMPOSSIBLE = [
    ({"arch": "7.0", "jetpack": "5.1"}, (
        "jetpack-5.1 is for no GPU of compute capability 7.0",
        "7.0 is Volta of servers, V100 and Titan V; the Xavier GPU is 7.2",
        "jetpack-5.1 can make: 7.2 (Jetson Xavier), 8.7 (Jetson Orin)",
    )),
    ({"arch": "8.6", "jetpack": "6.2"}, (
        "the Orin GPU is 8.7, and code for 8.6 does not run on it",
        "jetpack-6.2 can make: 8.7 (Jetson Orin)",
    )),
    ({"board": "tx2", "platform": "jetpack-6.2"}, (
        "jetpack-6.2 does not run on a Jetson TX2: the last that jetship knows for it is JetPack",
        "possible: jetpack-4.2, jetpack-4.4, jetpack-4.6",
    )),
    ({"board": "tx2", "jetpack": "6.2.1"}, ("jetpack-6.2 does not run on a Jetson TX2",)),
    ({"board": "thor", "platform": "jetpack-5.1"}, (
        "the first that jetship knows for it is JetPack 7.0 (L4T r38, Ubuntu 24.04)",
        "possible: jetpack-7.0, jetpack-7.2",
    )),
    ({"board": "orin", "platform": "server-cuda-11.8"}, (
        "server-cuda-11.8 does not run on a Jetson Orin: that is a server's platform",
    )),
    ({"board": "orin", "platform": "jetpack-7.0"}, (
        "jetpack-7.0 does not run on a Jetson Orin: its platforms are jetpack-5.1, ",
    )),
    ({"board": "gh200", "platform": "x86-64-cuda-12.4"}, (
        "does not run on GH200: that is for x86_64, and GH200 is aarch64",
        "possible: debian-13, server-cuda-11.8",
    )),
    ({"arch": "12.1", "platform": "x86-64-cuda-13.0"}, (
        "DGX Spark (12.1): that is for x86_64, and DGX Spark is aarch64", "9.0 (H100 and H200), ",
    )),
    ({"arch": "7.2", "platform": "server-cuda-11.8"}, (
        "server-cuda-11.8 is for no GPU of compute capability 7.2",
        "Jetson Xavier (7.2): that is a server's platform, and it is a Jetson",
    )),
    ({"arch": "10.1", "platform": "debian-13"}, ("CUDA 13 calls it 11.0",)),
    ({"arch": "3.5", "platform": "debian-13"}, (
        "CUDA 13.0 has no sm_35: of jetship's toolkits, 11.8 is the last that has",
    )),
    ({"arch": "6.2", "jetpack": "7.0"}, (
        "jetpack-7.0 is for no GPU of compute capability 6.2",
        "CUDA 13.0 has no sm_62: CUDA 12.9 is the last",
        "Jetson TX2 (6.2): the last that jetship knows for it is JetPack",
        "jetpack-7.0 can make: 11.0 (Jetson Thor)",
    )),
    ({"arch": "10.1", "jetpack": "7.0"}, (
        "CUDA 12.8 and 12.9 called the Thor GPU 10.1; CUDA 13 calls it 11.0",
        "CUDA 13.0 has no sm_101: CUDA 12.9 is the last",
    )),
    ({"arch": "6.2", "jetpack": "6.2"}, ("jetpack-6.2 is for no GPU",)),
    ({"board": "orin"}, (
        "several platforms run on a Jetson Orin: jetpack-5.1, jetpack-6.0, jetpack-6.2, jetpack",
        "say which, such as --platform jetpack-7.2",
    )),
    ({"board": "xavier", "arch": "7.2"}, ("several platforms run on a Jetson Xavier",)),
    ({"arch": "8.7", "jetpack": "6.3"}, (
        "JetPack 6.3 is not known", "the nearest known one is 6.2.2", "known of JetPack 6: 6.0, ",
    )),
    ({"arch": "8.7", "jetpack": "6.1", "platform": "jetpack-6.0"}, (
        "JetPack 6.1 is the platform jetpack-6.2, not jetpack-6.0",
        "give one of --jetpack and --platform",
    )),
    ({"board": "tx2", "arch": "7.2"}, (
        "the GPU of a Jetson TX2 is 6.2, not 7.2", "leave --arch out, or say --arch 6.2",
    )),
    ({"board": "xavier", "arch": "7.2,8.7", "jetpack": "5.1"}, (
        "the GPU of a Jetson Xavier is 7.2, not 8.7",
    )),
    ({"board": "xavier", "arch": "7.0"}, (
        "the GPU of a Jetson Xavier is 7.2, not 7.0",
        "7.0 is Volta of servers, V100 and Titan V; the Xavier GPU is 7.2",
        "leave --arch out, or say --arch 7.2",
    )),
    ({"board": "a100", "arch": "9.0"}, ("the GPU of A100 is 8.0, not 9.0",)),
    ({"board": "v100"}, (
        "several platforms run on V100 and Titan V: server-cuda-11.8, x86-64-cuda-12.4",
    )),
    ({"board": "v100", "platform": "jetpack-6.2"}, (
        "jetpack-6.2 does not run on V100 and Titan V: its platforms are server-cuda-11.8, x86",
    )),
    ({"arch": "10.0", "platform": "server-cuda-11.8"}, (
        "B200 (10.0): its platforms are debian-13, x86-64-cuda-13.0",
        "GB200 (10.0): its platforms are debian-13",
    )),
    ({"board": "orin,xavier"}, (
        "--board takes one board, and 'orin,xavier' names 2",
        "run the task once for each, or say --arch 8.7,7.2 --platform jetpack-5.1",
    )),
    ({"board": "tx2,xavier", "platform": "debian-12"}, ("--arch 6.2,7.2 --platform debian-12",)),
    ({"board": "orin,xavier", "jetpack": "5.1.2"}, ("--arch 8.7,7.2 --platform jetpack-5.1",)),
    ({"board": "tx2; Jetson-Thor"}, ("--board takes one board", "run the task once for each")),
    ({"board": "orin,zzz"}, ("board 'orin,zzz' is not known",)),
    ({"board": "tx3"}, ("board 'tx3' is not known", "did you mean 'tx2'?")),
    ({}, ("neither an arch nor a board is named", "--board tx2")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "said"), IMPOSSIBLE, ids=[" ".join(words.values()) for words, _ in IMPOSSIBLE]
)
def test_what_does_not_go_together_is_told_with_what_is_possible(catalog, words, said):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, **words)
    assert [text for text in said if text not in str(caught.value)] == []
    assert caught.value.fix


def test_a_server_platform_is_not_told_what_servers_are(catalog):
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch="8.7", platform="server-cuda-11.8")
    assert "Jetson Orin (8.7): that is a server's platform" in caught.value.why
    with pytest.raises(ConfigError) as caught:
        resolve(catalog, arch="10.0", platform="server-cuda-11.8")
    assert "Thor" not in caught.value.why


def test_only_what_runs_somewhere_is_listed_as_possible(catalog):
    for platform in catalog.platforms:
        with pytest.raises(ConfigError) as caught:
            resolve(catalog, arch="1.0", platform=platform.name)
        listed = re.findall(r"([0-9.]+) \(", caught.value.fix)
        assert listed
        assert {Arch.parse(arch) for arch in listed} <= set(platform.cuda.drives)
        assert [Arch.parse(arch) for arch in listed] == sorted(map(Arch.parse, listed))


@pytest.mark.parametrize(
    ("text", "again"),
    [
        ("sm62-debian-12", "sm62-debian-12"),
        ("sm87ptx-jetpack-6.2", "sm87ptx-jetpack-6.2"),
        ("sm87.sm72-jetpack-5.1", "sm72.sm87-jetpack-5.1"),
        ("sm110-jetpack-7.0", "sm110-jetpack-7.0"),
        ("cpu-jetpack-4.6", "cpu-jetpack-4.6"),
        ("cpu-debian-12", "cpu-debian-12"),
        ("6.2/debian-12", "sm62-debian-12"),
        ("7.2;8.7+PTX/jetpack-5.1", "sm72.sm87ptx-jetpack-5.1"),
        ("cpu/debian-12", "cpu-debian-12"),
    ],
)
def test_a_target_is_found_by_its_id(catalog, text, again):
    target = resolve_id(catalog, text)
    assert target.id == again
    assert resolve_id(catalog, target.id) == target


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("6.2-debian-12", "is not a target id"),
        ("cpu-", "is not a target id"),
        ("cpu-debian12", "platform 'debian12' is not known"),
        ("sm62-debian12", "platform 'debian12' is not known"),
        ("sm62-jetpack-7.0", "CUDA 12.9 is the last"),
        ("sm62.sm62-debian-12", "names 6.2 more than once"),
        ("9.9/debian-12", "--target entry 1: no GPU of compute capability 9.9"),
        ("sm62-debian-12,sm72-debian-12", "--target takes one target, and 'sm62-debian-12,sm72"),
        ("6.2/debian-12 cpu-debian-12", "names 2"),
    ],
)
def test_an_id_of_no_target_is_told(catalog, text, words):
    with pytest.raises(ConfigError) as caught:
        resolve_id(catalog, text)
    assert words in str(caught.value)
    assert caught.value.fix


def test_every_target_that_a_board_and_its_platforms_make_is_read_back(catalog):
    ids = set()
    for board in catalog.boards:
        for name in board.platforms:
            (target,) = resolve(catalog, board=board.name, platform=name)
            assert resolve_id(catalog, target.id) == target
            ids.add(target.id)
    assert {"sm62-jetpack-4.6", "sm87-jetpack-7.2", "sm70-server-cuda-11.8"} <= ids


@given(st.text(max_size=12) | st.text("0123456789.,; +PTXsm_", max_size=16))
def test_any_text_is_targets_or_a_config_error_that_helps(catalog, text):
    try:
        targets = resolve(catalog, arch=text)
    except ConfigError as error:
        assert error.fix  # noqa: PT017
    else:
        assert targets
        again = resolve(catalog, arch=";".join(target.arch_list for target in targets))
        assert again == targets
