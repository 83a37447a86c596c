import pytest
from jetship.targets.arch import Arch
from jetship.targets.gpucode import first_cuda_with, newest_ptx, runs_machine_code, takes_ptx


def test_every_platform_has_a_cuda_whose_ptx_is_known(catalog):
    assert all(newest_ptx(platform.cuda.version) for platform in catalog.platforms)


def test_every_jetson_is_a_tegra_and_no_server_is(catalog):
    for board in catalog.boards:
        facts = catalog.arch_facts(Arch.parse(board.arch))
        assert facts is not None
        assert facts.tegra == (board.kind == "jetson"), board.name


def test_the_newest_ptx_of_a_release():
    assert newest_ptx("12.6") == newest_ptx("12.6.68") == "8.5"
    assert newest_ptx("10.2") == "6.5"
    assert newest_ptx("99.1") is None


def test_the_first_release_that_knows_a_ptx():
    assert first_cuda_with("8.5") == "12.5"
    assert first_cuda_with("99.0") is None


@pytest.mark.parametrize(("gpu", "made_for"), [((8, 8), (8, 6)), ((8, 9), (8, 8))])
def test_an_arch_that_is_not_on_record_runs_its_own_code_alone(gpu, made_for):
    assert not runs_machine_code(Arch(*gpu), Arch(*made_for), "")
    assert runs_machine_code(Arch(*gpu), Arch(*gpu), "")


def test_ptx_of_an_older_arch_is_for_all_later_ones():
    assert takes_ptx(Arch(11, 0), Arch(5, 0), "")
    assert not takes_ptx(Arch(8, 7), Arch(8, 9), "")
