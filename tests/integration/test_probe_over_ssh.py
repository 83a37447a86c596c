"""Libraries of a device over SSH: a real server, whose sessions see an arm64 system."""

import json
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import ensure_emulation
from jetship.check.libraries import TargetLibraries
from jetship.check.prepared import target_libraries
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.prepare import prepare_base
from product import PROJECTS, invoke
from sshserver import Server, link_tree, running_server

CATALOG = Catalog.load()
TX2 = resolve(CATALOG, arch="6.2")[0]


@pytest.fixture(scope="module")
def device(tmp_path_factory) -> Path:
    """The root tree of a device: the system of debian-12, with its torch where pip puts it."""
    ensure_emulation()
    base = prepare_base(TX2.platform, Store(default_root()))
    root = tmp_path_factory.mktemp("device") / "root"
    link_tree(base / "rootfs", root)
    link_tree(base / "site-packages", root / "usr/lib/python3/dist-packages")
    return root


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> Iterator[Server]:
    with running_server(tmp_path_factory.mktemp("sshd")) as server:
        yield server


@pytest.fixture
def server(running, device) -> Server:
    running.serve(device)
    return running


@pytest.fixture(scope="module")
def record(running, device, tmp_path_factory) -> Path:
    """What one probe has read."""
    running.serve(device)
    file = tmp_path_factory.mktemp("record") / "device.probe"
    done = invoke("probe", running.address, *running.words, "--out", file, "--json").good()
    facts = done.json["facts"]
    assert (facts["machine"], facts["python"], facts["l4t"]) == ("aarch64", "3.11", None)
    assert facts["torch"].startswith("2.7.1")
    assert facts["soabi"] == "cpython-311-aarch64-linux-gnu"
    assert done.json["platforms"] == ["debian-12"]
    return file


def test_the_tables_are_those_of_the_files_themselves(record, toolchain):
    found = target_libraries(TX2, Store(default_root()), OwnParts(libraries=record))
    whole = TargetLibraries.of(toolchain)
    assert {library.grade for library in found.libraries.values()} == {"exact"}
    assert found.stubs == frozenset()
    for name in ("libc.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libc10.so", "libtorch_cpu.so"):
        one, other = found.libraries[name].elf, whole.libraries[name].elf
        assert dict(one.exports) == dict(other.exports), name
        assert (one.needed, one.version_definitions) == (other.needed, other.version_definitions)
    python = found.libraries[found.interpreter].elf
    assert "PyModule_Create2" in python.exports
    assert record.stat().st_size < 20_000_000, "the tables alone, not the libraries"


def test_a_check_against_the_device_is_exact(record, kernel_wheel, tmp_path):
    done = invoke("check", kernel_wheel, "--libraries", record, "--json")
    (report,) = done.json["reports"]
    assert {row["grade"] for row in report["findings"]} <= {"exact", "none"}
    (finding,) = [row for row in report["findings"] if row["rule"] == "libraries"]
    # The base image has a CPU torch and no CUDA half: there is nothing of which to be unsure.
    assert finding["outcome"] == "unknown"
    assert "libc10_cuda.so" in finding["evidence"]


def test_deploy_yaml_may_name_it(record, tmp_path):
    shutil.copytree(PROJECTS / "plain", tmp_path / "plain")
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(
        f"project: plain\ntargets: [{{arch: 6.2}}]\n"
        f"own_parts: {{debian-12: {{libraries: {json.dumps(str(record))}}}}}\n"
    )
    done = invoke("build", "--deploy", deploy, "--dist", tmp_path / "dist", "--json").good()
    (row,) = done.json["wheels"]
    assert row["outcome"] == "pass"
    grades = {one["grade"] for one in row["report"]["findings"] if one["rule"] == "symbols"}
    assert grades <= {"exact", "none"}


def test_another_platform_is_refused(record, kernel_wheel):
    done = invoke("check", kernel_wheel, "--target", "sm87-jetpack-6.2", "--libraries", record)
    error = done.one_error(2)
    assert "is of a device that is no jetpack-6.2" in error
    assert "Python 3.11 instead of 3.10" in error


def test_a_damaged_record_is_told(record, kernel_wheel, tmp_path):
    for number, damage in enumerate((lambda data: data[:-400], lambda data: b"x" * len(data))):
        bent = tmp_path / f"bent{number}.probe"
        bent.write_bytes(damage(record.read_bytes()))
        error = invoke("check", kernel_wheel, "--libraries", bent).one_error(2)
        assert "is no record of a device, or is damaged" in error


def test_wrong_and_unknown_host_keys_are_refused(server, tmp_path):
    known, identity = tmp_path / "known_hosts", server.folder / "client"
    words = ["probe", server.address, "--identity", identity, "--known-hosts", known]
    stranger = (server.folder / "stranger.pub").read_text()
    known.write_text(f"[127.0.0.1]:{server.port} {stranger}")
    assert "has another host key than the one that is known" in invoke(*words).one_error(5)
    known.write_text("")
    assert "host key of" in invoke(*words).one_error(5)
    assert known.read_text() == "", "no key is taken on trust"


def test_a_login_that_is_refused(server, tmp_path):
    words = server.words
    words[1] = server.folder / "stranger"
    assert "refuses the login" in invoke("probe", server.address, *words).one_error(5)


def test_a_device_that_does_not_answer(server, tmp_path):
    out = tmp_path / "out.probe"
    words = ["probe", "root@127.0.0.1", "--port", "1", *server.words, "--out", out]
    assert "cannot be reached" in invoke(*words).one_error(5)
    assert not out.exists()


def test_a_device_without_torch_or_python(server, device, tmp_path):
    bare = tmp_path / "bare"
    link_tree(device, bare)
    packages = bare / "usr/lib/python3/dist-packages"
    (packages / "torch").rename(packages / "torch_away")
    server.serve(bare)
    words = ["probe", server.address, *server.words, "--out", tmp_path / "out"]
    assert "has no torch for python3" in invoke(*words).one_error(2)
    assert "has no /opt/venv/bin/python" in invoke(
        *words, "--python", "/opt/venv/bin/python"
    ).one_error(2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [0, 200_000])
def test_a_link_that_is_cut_leaves_what_was_there(server, device, tmp_path, size):
    server.cut_after(device, size)
    out = tmp_path / "out.probe"
    out.write_text("the one of yesterday")
    error = invoke("probe", server.address, *server.words, "--out", out).one_error(5)
    assert "ended before all was read" in error
    assert out.read_text() == "the one of yesterday"
    assert [path.name for path in tmp_path.iterdir()] == ["out.probe"]


def test_a_time_limit_ends_it(server, device, tmp_path):
    words = ["--time-limit", "1", "--out", tmp_path / "out"]
    error = invoke("probe", server.address, *server.words, *words).one_error(5)
    assert "was not read within 1 s" in error


def test_nothing_of_the_device_is_left_out(record):
    with zipfile.ZipFile(record) as archive:
        index = json.loads(archive.read("index.json"))
    assert all("not a 64-bit" in why for _, why in index["left_out"])
    assert {row["name"] for row in index["files"]} >= {"libc.so.6", "libtorch_python.so"}
