"""What a command imports before it works: in an interpreter of its own."""

import json
import sys
from pathlib import Path

import pytest
from jetship import proc

PROGRAM = """
import json, sys
from jetship.tasks.main import program
try:
    program.run(["jetship", *sys.argv[1:]]) if sys.argv[1:] else None
except SystemExit:
    pass
print("\\n" + json.dumps(sorted(sys.modules)))
"""
LIBRARIES = {"docker", "requests", "jinja2", "setuptools", "build", "elftools", "installer"}
STAGES = {"jetship.pipeline", "jetship.assembly", "jetship.engine", "jetship.build.api",
          "jetship.image.build", "jetship.toolchain.imagetree", "jetship.toolchain.export",
          "jetship.check.page", "jetship.bench.crossbuild", "jetship.probe.api",
          "jetship.doctor", "jetship.fleet.planning", "jetship.fleet.running"}  # fmt: skip
CHECK = {"jetship.check.api", "jetship.survey", "jetship.elf", "jetship.toolchain.prepare",
         "zstandard"}  # fmt: skip


REPOSITORY = Path(__file__).parents[3]


def imported(*words: str) -> set[str]:
    """Return all modules that are there when a command line has ended."""
    done = proc.run([sys.executable, "-c", PROGRAM, *words])
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_tasks_of_the_repository_import_no_more():
    ask = "import json, sys, tasks; print(json.dumps(sorted(sys.modules)))"
    done = proc.run([sys.executable, "-c", ask], cwd=REPOSITORY)
    modules = set(json.loads(done.stdout))
    assert "jetship.tasks.images" in modules
    assert not modules & (LIBRARIES | STAGES | CHECK)


@pytest.mark.parametrize("words", [(), ("check", "--explain", "symbols"), ("targets",)])
def test_what_needs_no_check_imports_none(words):
    modules = imported(*words)
    assert "jetship.tasks.images" in modules
    assert not modules & (LIBRARIES | STAGES | CHECK)


def test_a_check_imports_neither_docker_nor_the_page_nor_the_build(tmp_path):
    wheel = tmp_path / "ops-1.0-cp311-cp311-linux_aarch64.whl"
    wheel.write_bytes(b"no archive")
    modules = imported("check", str(wheel), "--all-platforms")
    assert modules >= CHECK
    assert not modules & (LIBRARIES | STAGES)


def test_the_page_is_what_imports_jinja(tmp_path):
    wheel = tmp_path / "ops-1.0-cp311-cp311-linux_aarch64.whl"
    wheel.write_bytes(b"no archive")
    modules = imported("check", str(wheel), "--all-platforms", "--html", str(tmp_path / "p.html"))
    assert modules >= {"jinja2", "jetship.check.page"}
