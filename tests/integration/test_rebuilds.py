"""What is built a second time: only what changed, with the same bytes, from caches if it can."""

import contextlib
import shutil
import socket
import subprocess  # noqa: TID251 - a server has to stay in the background, which proc cannot do
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine import install
from product import PROJECTS, Ended, copy_of, invoke, wait_until, wheels_in

DEPLOY = """\
version: 1
project: c_extension
targets: [{arch: 6.2}]
image: {repository: acme/ops, smoke: ["true"]}
build:
  env: {OPS_ANSWER: "43"}
  before_build:
    - [python3, -c, "import os; open('answer.c', 'w').write('long answer(void) { return 0x5eed + '
      + os.environ['OPS_ANSWER'] + '; }')"]
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """A project that nobody has built before: its folder's name is in no other wheel."""
    project = copy_of("c_extension", tmp_path)
    (project / "unique.txt").write_text(str(tmp_path))
    return project


@pytest.fixture
def build(cache, dist):
    """Build a project; returns the row of its wheel, and what was said."""

    def build(project: Path, *words: str, **variables: str) -> tuple[dict, str]:
        options = ("--arch", "6.2", "--project", project, "--dist", dist, "--json")
        done = invoke("build", *options, *words, **{"JETSHIP_CACHE": str(cache), **variables})
        (row,) = done.good().json["wheels"]
        return row, done.stderr

    return build


def test_an_unchanged_project_is_not_built_again_and_says_so(build, project, dist):
    first, said = build(project)
    assert (first["unchanged"], first["objects_cached"], first["objects_compiled"]) == (False, 0, 2)
    assert "nothing has changed" not in said
    shutil.rmtree(dist)
    second, said = build(project)
    assert second["unchanged"] is True
    assert second["sha256"] == first["sha256"]
    assert "nothing has changed since this wheel was built" in said
    assert Path(second["wheel"]).is_file()
    assert "aarch64-linux-gnu-gcc" in Path(second["log"]).read_text()


def test_a_change_of_one_file_compiles_that_file_alone(build, project):
    build(project)
    (project / "answer.c").write_text("long answer(void) { return 43; }\n")
    row, said = build(project)
    assert row["unchanged"] is False
    assert (row["objects_cached"], row["objects_compiled"]) == (1, 1)
    assert "1 of 2 objects from the compiler cache" in said


def test_a_rebuild_takes_its_objects_from_the_compiler_cache(build, project):
    first, _ = build(project)
    row, _ = build(project, "--rebuild")
    assert (row["unchanged"], row["objects_cached"], row["objects_compiled"]) == (False, 2, 0)
    assert row["sha256"] == first["sha256"]


def test_verify_finds_the_same_bytes_again(build, project):
    row, said = build(project, "--verify")
    assert f"the same bytes again: sha256 {row['sha256']}" in said


def test_verify_tells_of_a_project_that_is_never_the_same(cache, dist):
    words = ("--arch", "6.2", "--project", PROJECTS / "stamped", "--dist", dist, "--rebuild")
    done = invoke("build", *words, "--verify", JETSHIP_CACHE=str(cache))
    error = done.one_error(6)
    assert "two builds of the same inputs gave different bytes" in error
    assert "stamped.cpython-311-aarch64-linux-gnu.so" in error
    assert (dist / "logs/stamped-sm62-debian-12.verify.log").is_file()
    assert wheels_in(dist) == []


def test_what_deploy_yaml_says_of_the_build_is_done(project, cache, tmp_path, dist):
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    before = (project / "answer.c").read_text()
    words = ("--deploy", tmp_path / "deploy.yaml", "--dist", dist)
    done: Ended = invoke("build", *words, JETSHIP_CACHE=str(cache)).good()
    assert "before_build: python3 -c" in done.stderr
    with zipfile.ZipFile(done.stdout.strip()) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        # mov x0, #0x5f18 (0x5eed + 43)
        assert (0xD2800000 | 0x5F18 << 5).to_bytes(4, "little") in archive.read(name)
    assert (project / "answer.c").read_text() == before


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """Run a Redis server for as long as the body takes; yields its address for ccache."""
    install("redis-server", "redis-server")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", ""]
    with (folder / "redis.log").open("wb") as log:
        server = subprocess.Popen([*words, "--dir", folder], stdout=log, stderr=log)
    try:
        wait_until(lambda: "eady to accept" in (folder / "redis.log").read_text(), "Redis's start")
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def test_another_machine_gets_its_objects_from_a_remote_cache(build, project, tmp_path):
    with redis(tmp_path) as address:
        rows = [
            build(project, "--rebuild", CCACHE_REMOTE_STORAGE=address, CCACHE_DIR=f"{tmp_path}/{n}")
            for n in ("here", "there")
        ]
    used = [(row["objects_cached"], row["objects_compiled"]) for row, _ in rows]
    assert used == [(0, 2), (2, 0)]
    assert rows[0][0]["sha256"] == rows[1][0]["sha256"]
