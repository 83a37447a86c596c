import shlex
from pathlib import Path

import pytest
from jetship.image.runline import board_line, emulation_line, run_lines
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve

CATALOG = Catalog.load()
IMAGE = "jetship/jetops:0.1.0-sm62-debian-12"


def target(arch="6.2", kind="emulation"):
    found = resolve(CATALOG, arch=arch)[0]
    return type(found)(found.code, found.platform.model_copy(update={"kind": kind}))


def board(name):
    return next(board for board in CATALOG.boards if board.name == name)


def test_tx2_gets_its_device_nodes():
    line = board_line(target(kind="jetpack"), board("tx2"), IMAGE, CATALOG)
    assert line.line == (
        "docker run --rm --runtime nvidia --device /dev/nvhost-ctrl --device /dev/nvhost-ctrl-gpu "
        "--device /dev/nvhost-prof-gpu --device /dev/nvmap --device /dev/nvhost-gpu "
        f"--device /dev/nvhost-as-gpu --device /dev/nvhost-vic --group-add video {IMAGE}"
    )
    assert line.note == ""


def test_orin_needs_no_nodes_by_name():
    line = board_line(target("8.7", "jetpack"), board("orin"), IMAGE, CATALOG)
    assert line.line == f"docker run --rm --runtime nvidia --group-add video {IMAGE}"


def test_server_has_no_tegra_nodes():
    line = board_line(target("8.0", "server"), board("a100"), IMAGE, CATALOG)
    assert line.line == f"docker run --rm --gpus all {IMAGE}"


def test_emulation_platform_says_which_platform_the_board_needs():
    emulated, tx2 = run_lines(target=target(), image=IMAGE, catalog=CATALOG)
    assert emulated.line == f"docker run --rm --platform linux/arm64 {IMAGE}"
    assert "JetPack 4.6 (L4T r32.7, Ubuntu 18.04)" in tx2.note
    assert "Jetson TX2" in tx2.title


@pytest.mark.parametrize(("jetpack", "nodes"), [("5.1", True), ("6.2", False), ("7.2", False)])
def test_the_device_nodes_are_those_of_the_platforms_release(jetpack, nodes):
    (orin,) = resolve(CATALOG, board="orin", jetpack=jetpack)
    line = board_line(orin, board("orin"), IMAGE, CATALOG)
    assert ("--device /dev/nvmap" in line.line) == nodes
    assert "--runtime nvidia" in line.line
    assert line.note == ""


def test_the_note_of_an_emulation_image_names_the_newest_platform_of_the_board():
    line = board_line(target("8.7"), board("orin"), IMAGE, CATALOG)
    assert "up to JetPack 7.2 (L4T r39, Ubuntu 24.04)" in line.note
    assert "--device" not in line.line, "and the line is that platform's"


def test_a_jetsons_line_of_a_servers_platform_says_that_it_does_not_run_it():
    found = resolve(CATALOG, arch="8.7", platform="debian-13")[0]
    (line,) = run_lines(target=found, image=IMAGE, catalog=CATALOG)
    assert "a Jetson Orin does not run debian-13" in line.note
    assert "up to JetPack 7.2" in line.note


def test_platform_of_a_board_has_no_emulation_line():
    lines = run_lines(target=target("5.3", "jetpack"), image=IMAGE, catalog=CATALOG)
    assert [line.title for line in lines] == ["Jetson Nano", "Jetson TX1"]
    assert not any(line.note for line in lines)


@pytest.mark.parametrize("word", ["a b", "$(id)", "it's", "print('x')"])
def test_words_are_quoted(word):
    line = emulation_line(target(), IMAGE, ["python3", "-c", word]).line
    assert shlex.split(line)[-1] == word


def test_stand_ins_are_mounted_where_given():
    line = emulation_line(target(), IMAGE, stubs=Path("/cache/my stubs")).line
    assert "--volume '/cache/my stubs:/opt/jetship/emulation:ro'" in line
    assert "--env LD_LIBRARY_PATH=/opt/jetship/emulation" in line
