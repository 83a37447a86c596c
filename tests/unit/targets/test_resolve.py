import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.errors import ConfigError
from jetship.targets.resolve import DEFAULT_PLATFORM, resolve


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
    "11.0": "CUDA 11.8 of debian-12 cannot compile for 11.0 (Jetson Thor)",
    "6.2,6.2": "--arch names 6.2 more than once",
    "6.2+ptx": "it is written as MAJOR.MINOR, with +PTX behind it to add PTX",
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
        ("native", "a wheel is built for named targets"),
        ("6.2 6.2+PTX", "--arch names 6.2 more than once"),
        ("06.2,6.2", "--arch names 6.2 more than once"),
        ("7.2,6.2,7.2,6.2", "--arch names 6.2, 7.2 more than once"),
        ("10.0", "no GPU of compute capability 10.0 is known"),
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
    assert "8.7" in caught.value.why
    assert "invoke targets" in caught.value.fix


def test_an_arch_that_no_listed_board_has_but_nvcc_makes_is_built(catalog):
    assert resolve(catalog, arch="6.1")[0].id == "sm61-debian-12"


def test_an_unknown_platform_is_told_the_nearest(catalog):
    with pytest.raises(ConfigError, match="platform 'debian12' is not known") as caught:
        resolve(catalog, arch="6.2", platform="debian12")
    assert "did you mean 'debian-12'?" in caught.value.fix


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
