"""Questions that go past torch and sysconfig's variables are answered for the target as well."""

import tarfile
import zipfile
from pathlib import Path

import pytest
from jetship import proc
from product import invoke, wheels_in

SETUP = """
import os, platform, subprocess, sysconfig
from setuptools import Extension, setup

include = sysconfig.get_path("include")
assert include == sysconfig.get_config_var("INCLUDEPY"), include
assert "sysroot" in include, include
assert {platform.machine(), os.uname().machine} == {"aarch64"}
version = subprocess.check_output(["git", "describe", "--tags"], text=True).strip()
files = subprocess.check_output(["git", "ls-files"], text=True).split()
assert "answer.c" in files, files
setup(name="asking", version=version, ext_modules=[Extension("_asking", ["answer.c"])])
"""
SOURCE = "int answer(void) { return 42; }\n"
OF_AN_SDIST = """
from setuptools import Extension, setup
from build.helpers import VERSION

setup(
    name="listed", version=VERSION, packages=["listed"], include_package_data=True,
    ext_modules=[Extension("_listed", ["answer.c"])],
)
"""


def git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.com")
    done = proc.run(["git", "-C", folder, *identity, *words])
    assert done.ok, done.stderr


@pytest.fixture
def asking(tmp_path) -> Path:
    folder = tmp_path / "asking"
    folder.mkdir()
    (folder / "setup.py").write_text(SETUP)
    (folder / "answer.c").write_text(SOURCE)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "all")
    git(folder, "tag", "3.1")
    return folder


def built(project: Path, dist: Path) -> Path:
    invoke("build", "--arch", "6.2", "--project", project, "--dist", dist).good()
    (wheel,) = wheels_in(dist)
    return wheel


def test_the_machine_the_headers_and_the_version_are_not_this_machines(toolchain, asking, tmp_path):
    index = (asking / ".git/index").read_bytes()
    assert built(asking, tmp_path / "dist").name.startswith("asking-3.1+")
    assert (asking / ".git/index").read_bytes() == index
    git(asking, "tag", "--annotate", "--message", "next", "3.2")  # no file changes with a tag
    assert built(asking, tmp_path / "next").name.startswith("asking-3.2+")


def test_all_that_an_sdist_has_is_source(toolchain, tmp_path):
    files = {
        "setup.py": OF_AN_SDIST,
        "answer.c": SOURCE,
        "build/__init__.py": "",
        "build/helpers.py": "VERSION = '1.0'\n",
        "listed/__init__.py": "",
        "listed/data/table.json": "{}\n",
        "listed.egg-info/PKG-INFO": "Metadata-Version: 2.1\nName: listed\nVersion: 1.0\n",
        "listed.egg-info/SOURCES.txt": "setup.py\nlisted/__init__.py\nlisted/data/table.json\n",
        "PKG-INFO": "Metadata-Version: 2.1\nName: listed\nVersion: 1.0\n",
    }
    folder = tmp_path / "listed-1.0"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with tarfile.open(tmp_path / "listed-1.0.tar.gz", "w:gz") as archive:
        archive.add(folder, "listed-1.0")
    wheel = built(tmp_path / "listed-1.0.tar.gz", tmp_path / "dist")
    assert "listed/data/table.json" in zipfile.ZipFile(wheel).namelist()
