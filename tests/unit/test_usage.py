"""Marks of use, between processes: whoever uses a folder keeps it from being deleted."""

import os
import subprocess  # noqa: TID251 - a process that holds a mark has to run in the background
import sys

import pytest
from jetship import usage

HOLDS = """
import sys
from pathlib import Path
from jetship import usage
usage.hold(Path(sys.argv[1]))
print("holds", flush=True)
sys.stdin.read()
"""


def is_free(mark) -> bool:
    with usage.alone(mark) as free:
        return free


@pytest.fixture
def mark(tmp_path):
    return tmp_path / "locks/x.use"


def test_what_nobody_uses_is_free(mark):
    assert is_free(mark)
    assert is_free(mark)


def test_what_this_process_uses_is_not_free(mark):
    usage.hold(mark)
    usage.hold(mark)
    assert not is_free(mark)
    assert len(usage._held) == 1


@pytest.mark.parametrize("end", ["closes", "killed"])
def test_what_another_process_uses_is_free_when_it_ends(mark, end):
    words = [sys.executable, "-c", HOLDS, str(mark)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"holds\n"
        assert not is_free(mark)
        usage.hold(mark)  # several may use it at once
        assert not is_free(mark)
        os.close(usage._held.pop(mark))
        assert not is_free(mark)
        if end == "closes":
            child.stdin.close()
        else:
            child.kill()
        child.wait()
        assert is_free(mark)


def test_use_sets_the_time_again(mark):
    usage.hold(mark)
    os.utime(mark, (1, 1))
    usage.hold(mark)
    assert mark.stat().st_mtime > 1


def test_where_nothing_can_be_written_nothing_is_marked(tmp_path):
    (tmp_path / "locks").touch()
    usage.hold(tmp_path / "locks/x.use")
    assert usage._held == {}
