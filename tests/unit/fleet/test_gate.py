"""The gate, by the tables of which L4T runs what, and all that else stops a device."""

import dataclasses
import time

import pytest
from fakefleet import CATALOG, FACTS
from jetship.fleet.gate import DISK_MARGIN_BYTES, Room, Wanted, judge
from jetship.targets.l4t import l4t_lines
from jetship.targets.resolve import resolve_id

NOW = time.time()


def verdict(target: str, board: str, *, wanted: dict | None = None, **facts):
    found = dataclasses.replace(FACTS, **{"clock": NOW, **facts})
    asked = Wanted(resolve_id(CATALOG, target), CATALOG.board(board), **(wanted or {}))
    return judge(found, asked, CATALOG, now=NOW)


ORIN = ("sm87-jetpack-6.2", "orin")
XAVIER = {"model": "NVIDIA Jetson Xavier NX Developer Kit", "cuda": "11.4"}
TX2 = {"model": "quill", "cuda": "10.2"}


@pytest.mark.parametrize(
    ("target", "board", "facts"),
    [
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.4.3"}),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.4.7"}),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.5.0"}),
        ("sm87-jetpack-6.0", "orin", {"l4t": "r36.3.0", "cuda": "12.2"}),
        ("sm72-jetpack-5.1", "xavier", {"l4t": "r35.1.0", **XAVIER}),
        ("sm72-jetpack-5.1", "xavier", {"l4t": "r35.6.4", **XAVIER}),
        # CUDA of the device does not matter where the image brings its own.
        ("sm72-jetpack-5.1", "xavier", {"l4t": "r35.4.1", **XAVIER, "cuda": ""}),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.4.3", "cuda": "12.9"}),
        ("sm62-jetpack-4.6", "tx2", {"l4t": "r32.7.6", **TX2}),
        ("sm62-jetpack-4.6", "tx2", {"l4t": "r32.6.1", **TX2}),
        ("sm110-jetpack-7.0", "thor", {"l4t": "r38.4.0", "model": "NVIDIA Jetson AGX Thor"}),
        ("sm87-jetpack-7.2", "orin", {"l4t": "r39.2.0"}),
        # No kernel tells it: a board of one's own, or a machine without a device tree.
        ("sm87-jetpack-6.2", "orin", {"model": ""}),
        ("sm87-jetpack-6.2", "orin", {"model": "ACME carrier 3"}),
        ("sm87-jetpack-6.2", "orin", {"docker": "20.10.24+dfsg1"}),
        ("sm87-debian-12", "orin", {"l4t": "", "cuda": "", "model": ""}),
    ],
)
def test_what_fits_is_let_through(target, board, facts):
    assert verdict(target, board, **facts).refusals == ()


@pytest.mark.parametrize(
    ("target", "board", "facts", "said"),
    [
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.3.0"}, "r36.3.0 does not run images of jetp"),
        ("sm87-jetpack-6.0", "orin", {"l4t": "r36.4.3"}, "build for jetpack-6.2"),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r35.4.1"}, "build for jetpack-5.1"),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r39.2.0"}, "build for jetpack-7.2"),
        ("sm62-jetpack-4.6", "tx2", {"l4t": "r32.5.1", **TX2}, "build for jetpack-4.4"),
        ("sm72-jetpack-5.1", "xavier", {"l4t": "r32.7.1", **XAVIER}, "build for jetpack-4.6"),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r36.9.9"}, "not known; the nearest known is r36.5.0"),
        ("sm87-jetpack-6.2", "orin", {"l4t": "r37.0.0"}, "is not known"),
        ("sm87-jetpack-6.2", "orin", {"l4t": "whatever"}, "is not known"),
        ("sm87-jetpack-6.2", "orin", {"l4t": ""}, "no L4T (/etc/nv_tegra_release)"),
        ("sm87-debian-12", "orin", {}, "debian-12 is an open userland for emulation and CI"),
        ("sm87-debian-13", "orin", {}, "debian-13 is for servers"),
        ("sm87-jetpack-6.2", "orin", {"machine": "x86_64"}, "the device is x86_64, and the image"),
        ("sm87-jetpack-6.2", "orin", {"machine": ""}, "of an unknown machine"),
        ("sm87-jetpack-6.2", "orin", {"model": "Jetson-AGX"}, "a xavier; deploy.yaml has it as or"),
        ("sm87-jetpack-6.2", "orin", {"model": "quill\0"}, "'quill', a tx2"),
        ("sm62-jetpack-4.6", "tx2", {"l4t": "r32.7.1", **TX2, "cuda": "10.0"}, "it has CUDA 10.0"),
        ("sm62-jetpack-4.6", "tx2", {"l4t": "r32.7.1", **TX2, "cuda": ""}, "no CUDA was found"),
        ("sm87-jetpack-6.2", "orin", {"docker": "", "docker_error": "no socket"}, "(no socket)"),
        ("sm87-jetpack-6.2", "orin", {"docker": "17.03.2-ce"}, "17.03.2-ce is older than 18.9"),
        ("sm87-jetpack-6.2", "orin", {"docker": "dev"}, "no version that can be read"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_sentence(target, board, facts, said):
    (refusal,) = verdict(target, board, **facts).refusals
    assert said in refusal


def test_all_refusals_are_told_at_once():
    found = verdict(*ORIN, machine="x86_64", l4t="r35.4.1", docker="").refusals
    assert len(found) == 3


def test_every_release_runs_the_images_of_its_own_platform_and_no_other():
    platforms = [one for one in CATALOG.platforms if one.l4t]
    for platform in platforms:
        for other in platforms:
            runs = {l4t_lines().runs(release, platform.l4t) for release in other.l4t}
            assert runs == {platform is other}, (platform.name, other.name)


def test_a_release_of_no_line_runs_its_own_images_alone():
    assert l4t_lines().runs("r32.4.4", ["r32.4.4"])
    assert not l4t_lines().runs("r32.4.4", ["r32.5.0"])
    assert l4t_lines().runs("r35.9.9", ["r35.1.0"])
    assert not l4t_lines().runs("r36.3.9", ["r36.4.0"])


def test_the_runtime_that_the_words_ask_for_has_to_be_there():
    wanted = {"runtime": "nvidia"}
    assert verdict(*ORIN, wanted=wanted).refusals == ()
    (said,) = verdict(*ORIN, wanted=wanted, runtimes=("runc",)).refusals
    assert "no runtime 'nvidia' (it has runc)" in said
    assert verdict(*ORIN, runtimes=()).refusals == ()


def test_the_disk_has_room_for_the_image_and_a_margin():
    room = {"room": Room(engine_bytes=2 << 30, state_bytes=1 << 30)}
    needed = (3 << 30) + DISK_MARGIN_BYTES
    assert verdict(*ORIN, wanted=room, disk_free_bytes=needed).refusals == ()
    (said,) = verdict(*ORIN, wanted=room, disk_free_bytes=needed - 1).refusals
    assert said == "its disk has 3327 MiB free, and the image needs 3328 MiB while it comes"
    two = {"one_disk": False, "disk_free_bytes": needed, "state_free_bytes": 1 << 30}
    (said,) = verdict(*ORIN, wanted=room, **two).refusals
    assert said.startswith("its disk of the state folder has 1024 MiB")
    assert verdict(*ORIN, disk_free_bytes=0, state_free_bytes=0).refusals == ()


def test_a_wrong_clock_stops_a_pull_and_is_only_told_otherwise():
    late = NOW - 7200
    assert verdict(*ORIN, clock=late).notes == ("its clock is 2 hours behind",)
    assert verdict(*ORIN, clock=late).refusals == ()
    pulled = verdict(*ORIN, clock=NOW + 400, wanted={"transfer": "registry"})
    assert pulled.refusals == (
        "its clock is 7 minutes ahead, so certificates of the registry may not hold",
    )
    assert verdict(*ORIN, clock=NOW + 299, wanted={"transfer": "registry"}).refusals == ()
    assert verdict(*ORIN, clock=NOW + 299).notes == ()
