"""The examples run as they stand."""

import os
import re
import subprocess
import sys

import pytest

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "examples")


@pytest.mark.skipif(not os.path.isdir(FOLDER), reason="the tests are not beside the sources")
def test_the_detector_loop():
    done = subprocess.run(
        [sys.executable, os.path.join(FOLDER, "detector_loop.py")],
        check=False,
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0, lines
    kept = [re.match(r"frame (\d+): (\d+) of 500 boxes kept$", line).groups() for line in lines]
    assert [int(index) for index, _ in kept] == list(range(30))
    assert all(0 < int(count) < 500 for _, count in kept)
