"""jit_load: the same sources, compiled here, bound with pybind11."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
from test_fused_attn_nms import random_case

import jetops
from jetops import jit

SOURCES = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
needs_ninja = pytest.mark.skipif(shutil.which("ninja") is None, reason="torch compiles with ninja")


@pytest.fixture(scope="module")
def module(tmp_path_factory):
    if not os.path.isdir(os.path.join(SOURCES, "kernels")):
        pytest.skip("the tests are not beside the sources")
    folder = tmp_path_factory.mktemp("jit")
    return jetops.jit_load(SOURCES, build_directory=str(folder))


@needs_ninja
def test_it_computes_what_the_installed_operators_compute(module, device):
    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("compiled without CUDA")
    case = [tensor.to(device) for tensor in random_case(300, seed=2)]
    for compiled, installed in zip(
        module.fused_attn_nms_scored(*case, 0.5), jetops.fused_attn_nms_scored(*case, 0.5)
    ):
        assert torch.equal(compiled, installed)
    assert torch.equal(module.gelu(case[1], approximate="tanh"), jetops.gelu(case[1], "tanh"))
    assert torch.equal(torch.ops.jetops_jit.gelu(case[1]), jetops.gelu(case[1]))


@needs_ninja
def test_tensors_are_not_copied(module, device):
    x = torch.randn(6, 7, device=device)
    for view in (x, x[2:], x.t(), x[:, ::2], x.view(-1)[5:]):
        assert module.data_pointer(view) == view.data_ptr()


@needs_ninja
def test_it_has_gradients(module, device):
    x = torch.randn(5, device=device, requires_grad=True)
    module.gelu(x).sum().backward()
    expected = torch.ops.jetops.gelu_backward(torch.ones(5, device=device), x.detach())
    assert torch.equal(x.grad, expected)


@needs_ninja
def test_a_second_process_takes_what_the_first_one_compiled(module):
    folder = os.path.dirname(module.__file__)
    before = os.stat(module.__file__).st_mtime_ns
    code = f"import jetops; print(jetops.jit_load({SOURCES!r}, build_directory={folder!r}).gelu)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.returncode == 0, done.stdout.decode()
    assert os.stat(module.__file__).st_mtime_ns == before


def copy_of_sources(folder):
    for name in ("bindings", "kernels"):
        shutil.copytree(os.path.join(SOURCES, name), os.path.join(str(folder), name))
    return str(folder)


@needs_ninja
def test_the_same_sources_are_loaded_once(module, tmp_path):
    assert jetops.jit_load(SOURCES) is module
    assert jetops.jit_load(copy_of_sources(tmp_path)) is module


@needs_ninja
@pytest.mark.parametrize("changed", ["kernels/cpu/gelu.cpp", "kernels/gelu_math.h"])
def test_sources_that_changed_need_another_name(module, tmp_path, changed):
    """torch itself would abort the process, or keep to the old code if a header has changed."""
    with open(os.path.join(copy_of_sources(tmp_path), changed), "a") as stream:
        stream.write("// changed\n")
    with pytest.raises(ValueError, match=r"torch.ops.jetops_jit is taken.* another namespace"):
        jetops.jit_load(str(tmp_path))


def test_a_name_that_is_taken_is_refused():
    if os.path.isdir(os.path.join(SOURCES, "kernels")):
        for name in ("jetops", "aten"):
            with pytest.raises(ValueError, match=f"torch.ops.{name} is taken"):
                jetops.jit_load(SOURCES, namespace=name)


@needs_ninja
def test_other_threads_go_on_while_an_operator_works(module):
    x = torch.zeros(20_000_000)
    ticks, ended = [], threading.Event()

    def tick():
        while not ended.wait(0.001):
            ticks.append(time.monotonic())

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        for gelu in (module.gelu, jetops.gelu):
            started = time.monotonic()
            gelu(x)
            taken = time.monotonic() - started
            assert sum(started < at < started + taken for at in ticks) > 3, taken
    finally:
        ended.set()
        thread.join()


def test_missing_sources_are_explained(tmp_path):
    with pytest.raises(ImportError, match=r"has no bindings/; name the folder csrc/ of a checkout"):
        jetops.jit_load(str(tmp_path))


def test_a_name_that_is_none_is_refused():
    if os.path.isdir(os.path.join(SOURCES, "kernels")):
        for name in ("a-b", "", "1a", "a\n", "\u00e4", None, 7, b"a", "class", "lambda", "union"):
            with pytest.raises(ValueError, match="must be a C\\+\\+ name"):
                jetops.jit_load(SOURCES, namespace=name)


@pytest.mark.parametrize("name", ["torch", "std", "c10"])
def test_a_namespace_of_torch_is_refused(name):
    with pytest.raises(ValueError, match=f"the namespace {name} is taken, by torch itself"):
        jetops.jit_load(SOURCES, namespace=name)


@needs_ninja
def test_a_path_may_be_of_any_kind(module):
    assert jetops.jit_load(os.fsencode(SOURCES)) is module
    with pytest.raises(TypeError, match="expected str, bytes or os.PathLike object, not int"):
        jetops.jit_load(7)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what there is to do without CUDA")
def test_cuda_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(RuntimeError, match="was to compile CUDA kernels, but torch"):
        jetops.jit_load(SOURCES, with_cuda=True, namespace="jetops_cuda", build_directory=tmp_path)


@needs_ninja
@pytest.mark.parametrize("why", ["ends with an error", "is no program"])
def test_a_compiler_that_does_not_work_is_told(tmp_path, monkeypatch, why):
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nexit 1\n" if why == "ends with an error" else "text")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(RuntimeError, match=f"with {compiler}, which CXX names.*; set CXX to"):
        jetops.jit_load(SOURCES, False, "jetops_none", build_directory=str(tmp_path / "build"))


@pytest.mark.parametrize("by", ["argument", "variable"])
@pytest.mark.parametrize("in_the_way", ["a file", "a lock of another kind"])
def test_a_folder_that_cannot_be_written_to_is_told(tmp_path, monkeypatch, by, in_the_way):
    """Root may write everywhere, so that permissions would not do."""
    folder = tmp_path / "cache/jetops_none"
    if in_the_way == "a file":
        (tmp_path / "cache").touch()
    else:
        (folder / "jetops.lock").mkdir(parents=True)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "cache"))
    given = folder if by == "argument" else None
    with pytest.raises(OSError, match=f"cannot write to {folder} .* with build_directory= or in"):
        jetops.jit_load(SOURCES, False, "jetops_none", build_directory=given)


def waits_for_ever(folder):
    """Source text of a process that holds both locks on ``folder``, as in a long build."""
    return f"""
import os, time
from jetops import jit
with jit._alone_in({str(folder)!r}):
    os.open(os.path.join({str(folder)!r}, "lock"), os.O_CREAT | os.O_EXCL)
    print("compiling", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def compiling(tmp_path):
    """A process that compiles in ``tmp_path``."""
    process = subprocess.Popen(
        [sys.executable, "-c", waits_for_ever(tmp_path)],
        cwd=os.path.dirname(__file__),
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"compiling\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_the_lock_of_a_process_that_was_killed_is_removed(compiling, tmp_path):
    compiling.kill()
    compiling.wait()
    assert (tmp_path / "lock").exists()
    for _ in range(2):
        with jit._alone_in(str(tmp_path)):
            assert not (tmp_path / "lock").exists()


def test_the_lock_of_a_process_that_lives_is_waited_for(compiling, tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "SECONDS_OF_SILENCE", 0.2)
    entered = []

    def enter():
        with jit._alone_in(str(tmp_path)):
            entered.append((tmp_path / "lock").exists())

    thread = threading.Thread(target=enter)
    thread.start()
    with pytest.warns(UserWarning, match="jit_load waits for another process that compiles in"):
        thread.join(1.5)
    assert thread.is_alive() and entered == [] and (tmp_path / "lock").exists()
    compiling.kill()
    compiling.wait()
    thread.join(10.0)
    assert entered == [False]


def test_a_lock_of_somebody_else_is_left_alone_and_named(tmp_path):
    (tmp_path / "lock").touch()
    message = "jit_load waits until .*lock is gone.* delete that file"
    with pytest.warns(UserWarning, match=message), jit._alone_in(str(tmp_path)):
        pass
    assert (tmp_path / "lock").exists()


@needs_ninja
def test_a_build_goes_on_where_a_killed_one_ended(module, tmp_path):
    """Killed in mid-build, with torch's lock in the folder; the next process compiles and loads."""
    folder = str(tmp_path / "build")
    shutil.copytree(os.path.dirname(module.__file__), folder)
    os.remove(os.path.join(folder, "schema.o"))  # so that there is one file to compile
    lock = os.path.join(folder, "lock")
    code = f"import jetops; jetops.jit_load({SOURCES!r}, build_directory={folder!r})"
    arguments = [sys.executable, "-c", code]
    first = subprocess.Popen(arguments, cwd=folder, start_new_session=True)
    deadline = time.monotonic() + 60.0
    while not os.path.exists(lock) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)  # with its compiler
    first.wait()
    assert os.path.exists(lock)
    done = subprocess.run(
        arguments,
        check=False,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout.decode()
    assert os.path.exists(os.path.join(folder, "schema.o")) and not os.path.exists(lock)
