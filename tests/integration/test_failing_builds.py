"""Projects that do not build: the compiler's own words, a log, and no wheel."""

from pathlib import Path

import pytest
from product import PROJECTS, copy_of, invoke, names_in, wheels_in

SYNTAX_ERROR = "from setuptools import setup\n\n\ndef broken(:\n    pass\n"
GIVES_UP = "raise SystemExit('libfancy is needed: install it first')\n"
IMPORTS = "import no_such_module\n"

# Project (and another setup.py for it), and what of its own words has to be seen.
FAILING = {
    "C++": ("bad_cpp", None, "src/bad.cpp:4:10: error: "),
    "CUDA": ("bad_cuda", None, 'src/bad.cu(3): error: identifier "faktor" is undefined'),
    "raises": ("raises", None, 'File "setup.py", line 3'),
    "syntax": ("raises", SYNTAX_ERROR, "SyntaxError"),
    "gives-up": ("raises", GIVES_UP, "libfancy is needed"),
    "import": ("raises", IMPORTS, "No module named 'no_such_module'"),
}


@pytest.fixture(params=FAILING.values(), ids=FAILING)
def failing(request, tmp_path):
    name, setup, words = request.param
    project = copy_of(name, tmp_path)
    if setup is not None:
        (project / "setup.py").write_text(setup)
    return project, words


def test_the_projects_own_words_are_the_error(failing, cache, dist):
    project, words = failing
    before = names_in(project)
    done = invoke(
        "build", "--arch", "6.2", "--project", project, "--dist", dist, JETSHIP_CACHE=str(cache)
    )
    error = done.one_error(6)
    assert words in error
    assert str(cache) not in error, "the copy that was built is gone: its path helps nobody"
    log = dist / "logs" / f"{project.name}-sm62-debian-12.log"
    assert f"the whole log is {log}" in error
    assert words.rpartition("/")[2].split('"')[-1] in log.read_text()
    assert names_in(dist) == ["logs"]
    assert names_in(cache / "tmp") == []
    assert names_in(project) == before


def test_a_compile_error_names_the_file_where_the_user_has_it(cache, dist):
    project = PROJECTS / "bad_cuda"
    done = invoke(
        "build", "--arch", "6.2", "--project", project, "--dist", dist, JETSHIP_CACHE=str(cache)
    )
    assert f"{project}/src/bad.cu(3): error" in done.one_error(6)


def test_as_json(toolchain, dist):
    words = ("--project", PROJECTS / "bad_cpp", "--dist", dist, "--json")
    done = invoke("build", "--arch", "6.2", *words)
    error = done.one_error(6)
    (row,) = done.json["wheels"]
    assert row["wheel"] is None
    assert row["error"]["what"] in error
    assert row["error"]["exit_code"] == 6
    assert "bad.cpp:4:10" in row["error"]["why"]
    assert "bad.cpp:4:10" in Path(row["log"]).read_text()


def test_one_target_that_fails_does_not_stop_the_other(toolchain, tmp_path, dist):
    project = copy_of("kernel", tmp_path)
    kernel = project / "scale.cu"
    kernel.write_text(kernel.read_text() + "#if __CUDA_ARCH__ == 620\n#error not here\n#endif\n")
    done = invoke("build", "--arch", "6.2,7.2", "--project", project, "--dist", dist, "--json")
    assert done.status == 6
    assert "Traceback" not in done.stderr
    assert "not here" in done.stderr
    failed, built = done.json["wheels"]
    assert (failed["wheel"], built["outcome"]) == (None, "pass")
    assert [str(path) for path in wheels_in(dist)] == [built["wheel"]]


def test_a_project_that_needs_another_torch(toolchain, tmp_path, dist):
    project = copy_of("plain", tmp_path)
    setup = project / "setup.py"
    setup.write_text(
        setup.read_text().replace('version="1.0",', 'version="1.0", install_requires=["torch<2"],')
    )
    done = invoke("build", "--arch", "6.2", "--project", project, "--dist", dist)
    assert "requires torch<2, and debian-12 has torch 2.7.1" in done.one_error(6)
    assert wheels_in(dist) == []


def test_build_requirements_without_a_network(toolchain, tmp_path, dist):
    project = copy_of("plain", tmp_path)
    pyproject = project / "pyproject.toml"
    # An environment that no other build has left in the cache.
    pyproject.write_text(pyproject.read_text().replace("setuptools>=61", "setuptools>=61,!=61.0.0"))
    done = invoke(
        "build", "--arch", "6.2", "--project", project, "--dist", dist,
        PIP_CONFIG_FILE="/dev/null", PIP_INDEX_URL="http://127.0.0.1:9/simple",
        PIP_NO_INDEX=None, PIP_FIND_LINKS=None, PIP_EXTRA_INDEX_URL=None, PIP_RETRIES="1",
    )  # fmt: skip
    error = done.one_error(5)
    assert "build requirements cannot be installed: setuptools>=61,!=61.0.0" in error
    assert "the package index does not answer" in error
    assert "check the network" in error
    assert wheels_in(dist) == []
