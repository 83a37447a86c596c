"""Several archs: a wheel each, or one wheel with all."""

from pathlib import Path

import pytest
from independent import Opened, device_code
from product import LABEL, PROJECTS, copy_of, invoke, jetship, wheels_in


@pytest.fixture
def archs_of(toolchain, tmp_path):
    """Return the machine code and the PTX in a wheel, by cuobjdump."""

    def look(wheel: Path) -> tuple[set[str], set[str]]:
        library = tmp_path / "library.so"
        library.write_bytes(Opened(wheel).library)
        return device_code(toolchain.cuda_home / "bin/cuobjdump", library)

    return look


def test_two_archs_give_two_wheels(archs_of, dist):
    words = ("--arch", "6.2,7.2", "--project", PROJECTS / "kernel", "--dist", dist)
    done = invoke("build", *words).good()
    assert sorted(done.stdout.splitlines()) == [str(path) for path in wheels_in(dist)]
    assert [archs_of(path) for path in wheels_in(dist)] == [({"62"}, set()), ({"72"}, set())]


def test_fat_gives_one_wheel_with_both(archs_of, dist):
    words = ("--arch", "6.2;7.2+PTX", "--fat", "--project", PROJECTS / "kernel", "--dist", dist)
    (row,) = invoke("build", *words, "--json").good().json["wheels"]
    (wheel,) = wheels_in(dist)
    assert row["wheel"] == str(wheel)
    assert f"+{LABEL}.sm62.sm72ptx-" in wheel.name
    assert archs_of(wheel) == ({"62", "72"}, {"72"})
    invoke("check", wheel).good()


def test_the_project_is_the_current_folder_where_there_is_no_deploy_yaml(toolchain, tmp_path):
    project = copy_of("kernel", tmp_path)
    printed = jetship("build", "--arch", "8.7", cwd=project).good().stdout.strip()
    assert (project / printed).is_file()
    assert printed.startswith("dist/kernel-2.0+")


def test_a_project_without_cuda_code_is_fine(toolchain, dist):
    words = ("--arch", "6.2", "--project", PROJECTS / "plain", "--dist", dist)
    (row,) = invoke("build", *words, "--json").good().json["wheels"]
    findings = {finding["rule"]: finding for finding in row["report"]["findings"]}
    assert findings["device-code"]["outcome"] == "pass"
    assert "no device code" in findings["device-code"]["reason"]
