"""Wheels that do not fit, as `check` meets them."""

import sys
import zipfile
from pathlib import Path

import pytest
from jetship import proc
from jetship.build.wheelfile import Member, Wheel
from product import copy_of, invoke


@pytest.fixture(scope="session")
def native_wheel(tmp_path_factory) -> Path:
    """A wheel that this machine's own compiler and setuptools made for this machine."""
    folder = tmp_path_factory.mktemp("native")
    project = copy_of("plain", folder)
    words = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder)
    done = proc.run([sys.executable, "-m", "pip", "wheel", "--quiet", *words, project])
    assert done.ok, done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def failures(done) -> dict[str, str]:
    """Return rule and reason of what failed, by the report on stdout."""
    (report,) = done.json["reports"]
    assert report["outcome"] == "fail"
    return {row["rule"]: row["reason"] for row in report["findings"] if row["outcome"] == "fail"}


def test_a_wheel_of_the_build_machine(toolchain, native_wheel):
    done = invoke("check", native_wheel, "--arch", "6.2", "--json")
    assert "1 of 1 wheel did not pass" in done.one_error(7)
    found = failures(done)
    assert {"machine", "tags"} <= set(found)
    assert "x86" in found["machine"]


def test_a_wheel_of_the_build_machine_under_a_name_of_the_target(toolchain, native_wheel, tmp_path):
    renamed = tmp_path / "plain-1.0-cp311-cp311-linux_aarch64.whl"
    renamed.write_bytes(native_wheel.read_bytes())
    done = invoke("check", renamed, "--arch", "6.2", "--json")
    done.one_error(7)
    assert "machine" in failures(done)


def test_the_report_for_people_says_the_failures_first(toolchain, native_wheel):
    done = invoke("check", native_wheel, "--arch", "6.2")
    done.one_error(7)
    first, second = done.stdout.splitlines()[:2]
    assert first == f"{native_wheel.name} for sm62-debian-12: fail"
    assert second.startswith("FAIL ")


def test_a_library_that_is_cut_off_is_seen_although_record_is_right(kernel_wheel, tmp_path):
    wheel = Wheel.read(kernel_wheel)
    (name,) = [name for name in wheel.members if name.endswith(".so")]
    data = wheel.members[name].data
    wheel.members[name] = Member(data[: len(data) // 2])
    done = invoke("check", wheel.write(tmp_path), "--json")
    done.one_error(7)
    found = failures(done)
    assert "record" not in found
    assert "elf" in found


def test_a_file_that_was_changed_is_seen_by_record(kernel_wheel, tmp_path):
    changed = tmp_path / kernel_wheel.name
    with zipfile.ZipFile(kernel_wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name) + (b"\0" if name.endswith(".so") else b""))
    done = invoke("check", changed, "--json")
    done.one_error(7)
    assert "record" in failures(done)


@pytest.mark.parametrize("words", [(), ("--arch", "6.2"), ("--arch", "6.2", "--json")])
def test_a_file_that_is_no_archive(toolchain, tmp_path, words):
    path = tmp_path / "torch_ops-1.0-cp311-cp311-linux_aarch64.whl"
    path.write_text("<html>404</html>\n")
    done = invoke("check", path, *words)
    done.one_error(7)
    if "--json" in words:
        assert [row["exit_code"] for row in done.json["errors"]] == [7]


def test_a_wheel_that_is_cut_off(kernel_wheel, tmp_path):
    path = tmp_path / kernel_wheel.name
    path.write_bytes(kernel_wheel.read_bytes()[:-200])
    invoke("check", path).one_error(7)


def test_a_wheel_that_is_not_there(toolchain, tmp_path):
    invoke("check", tmp_path / "gone-1.0-py3-none-any.whl", "--arch", "6.2").one_error(2)


def test_a_wheel_that_does_not_say_its_target_is_checked_against_all_of_the_deploy_file(
    native_wheel,
):
    done = invoke("check", native_wheel, "--json")
    done.one_error(7)
    targets = ["sm62-debian-12", "sm72-debian-12", "sm87-debian-12"]
    assert [row["id"] for row in done.json["targets"]] == targets
    assert done.json["wheels"][0]["question"] == "deploy"


def test_a_wheel_checked_against_another_gpu(kernel_wheel):
    done = invoke("check", kernel_wheel, "--arch", "7.2", "--json")
    done.one_error(7)
    assert "no machine code for 7.2" in failures(done)["device-code"]


def test_one_bad_wheel_of_two_is_enough(kernel_wheel, native_wheel):
    done = invoke("check", kernel_wheel, native_wheel, "--arch", "6.2", "--json")
    assert "1 of 2 wheels did not pass" in done.one_error(7)
    assert [report["outcome"] for report in done.json["reports"]] == ["pass", "fail"]


def test_a_good_wheel_passes(kernel_wheel):
    done = invoke("check", kernel_wheel).good()
    assert done.stdout.startswith(f"{kernel_wheel.name} for sm62-debian-12: pass\n")
