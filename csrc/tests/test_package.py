"""The package as installed: loading, the import guard, the self-test."""

import json
import os
import shutil
import subprocess
import sys

import torch

import jetops
from jetops import _load


def run_python(code, path=None):
    """Run elsewhere than here: from inside csrc/ the source folder would be imported."""
    env = dict(os.environ)
    if path is not None:
        env["PYTHONPATH"] = str(path)
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command,
        check=False,
        cwd=os.path.dirname(__file__),
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def copy_of_package(folder, compiled=True):
    """The installed package in another folder, to be changed there."""
    source = os.path.dirname(jetops.__file__)
    ignore = shutil.ignore_patterns("__pycache__", *([] if compiled else ["*.so"]))
    return shutil.copytree(source, os.path.join(str(folder), "jetops"), ignore=ignore)


def test_the_compiled_half_is_a_python_module_too():
    result = run_python("import jetops, jetops._C; print(jetops._C.__name__)")
    assert result.returncode == 0, result.stdout.decode()


def test_a_library_named_for_another_python_is_found(tmp_path):
    package = copy_of_package(tmp_path)
    library = os.path.basename(_load.find_library())
    other = os.path.join(package, "_C.cpython-399-elsewhere.so")
    os.rename(os.path.join(package, library), other)
    result = run_python("import jetops; print(jetops.__file__)", tmp_path)
    assert result.returncode == 0, result.stdout.decode()
    assert str(tmp_path) in result.stdout.decode()


def test_a_missing_library_is_explained(tmp_path):
    copy_of_package(tmp_path, compiled=False)
    result = run_python("import jetops", tmp_path)
    assert result.returncode == 1
    assert "ImportError: jetops is not compiled" in result.stdout.decode()


def test_a_library_that_does_not_load_is_explained(tmp_path):
    package = copy_of_package(tmp_path, compiled=False)
    with open(os.path.join(package, "_C.so"), "wb") as stream:
        stream.write(b"not a library")
    result = run_python("import jetops", tmp_path)
    assert result.returncode == 1
    assert "ImportError: jetops could not load" in result.stdout.decode()
    assert torch.__version__ in result.stdout.decode()


def test_the_import_guard_speaks_before_the_library_is_loaded(tmp_path):
    package = copy_of_package(tmp_path, compiled=False)
    with open(os.path.join(package, "_jetship_guard.py"), "w") as stream:
        stream.write("def check():\n    raise ImportError('this wheel is for another machine')\n")
    result = run_python("import jetops", tmp_path)
    assert "this wheel is for another machine" in result.stdout.decode()


def test_an_error_inside_the_import_guard_is_not_hidden(tmp_path):
    package = copy_of_package(tmp_path)
    with open(os.path.join(package, "_jetship_guard.py"), "w") as stream:
        stream.write("import no_such_module_at_all\n")
    result = run_python("import jetops", tmp_path)
    assert "No module named 'no_such_module_at_all'" in result.stdout.decode()


def test_the_self_test_passes_and_says_so_in_json():
    result = run_python("import sys; from jetops import selftest; sys.exit(selftest.main())")
    assert result.returncode == 0, result.stdout.decode()
    report = json.loads(result.stdout.decode())
    assert report["ok"] is True
    assert {check["op"] for check in report["checks"]} == {
        "gelu",
        "bias_gelu_dropout",
        "fused_attn_nms",
        "fused_attn_nms_scored",
    }
    assert all(check["ok"] for check in report["checks"])


def test_the_self_test_explains_itself_and_refuses_what_it_does_not_know():
    code = "import sys; from jetops import selftest; sys.exit(selftest.main(%r))"
    result = run_python(code % ["--help"])
    assert result.returncode == 0
    assert "units of what is allowed" in " ".join(result.stdout.decode().split())
    result = run_python(code % ["--device"])
    assert result.returncode == 2
    assert "unrecognized arguments: --device" in result.stdout.decode()
