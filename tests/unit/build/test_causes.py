"""Causes of failures in what real programs print; each line below was printed by one."""

import pytest
from jetship.build.causes import REPORT, Cause, Said
from jetship.build.causes import find_cause as find

LD = "/t/usr/bin/../lib/gcc-cross/aarch64-linux-gnu/11/../../../../aarch64-linux-gnu/bin/ld"
MEMORY = {
    "aarch64-linux-gnu-g++-11: fatal error: Killed signal terminated program cc1plus": "cc1plus",
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)": "cicc",
    "nvcc error   : 'cudafe++' died due to signal 9 (Kill signal)": "cudafe++",
    "nvcc error   : 'ptxas' died due to signal 9 (Kill signal)": "ptxas",
    "virtual memory exhausted: Cannot allocate memory": "a compiler",
    "cc1plus: out of memory allocating 65536 bytes after a total of 58720256 bytes": "a compiler",
    'stl_pair.h(180): catastrophic error: out of memory\n\n1 catastrophic error detected in the '
    'compilation of "k.cu".': "a compiler",
    "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc":
        "a compiler",
    "OSError: [Errno 12] Cannot allocate memory": "a compiler",
    "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\nMemoryError":
        "a compiler",
    "Killed\nninja: build stopped: subcommand failed.": "a compiler",
    "make: *** [Makefile:2: big.o] Killed": "a compiler",
}  # fmt: skip
KILLED = [
    "subprocess.CalledProcessError: Command '['cmake', '.']' died with <Signals.SIGKILL: 9>.",
    "error: command '/t/bin/aarch64-linux-gnu-g++' failed with exit code -9",
    "FAILED: [code=137] build/op.o",
    "a compiling process was ended by SIGKILL (jetship)",
]
CRASHED = {
    "cc1plus: internal compiler error: Segmentation fault\n0x7f39 ???": ("cc1plus", "SIGSEGV"),
    "cc1plus: internal compiler error: Bus error": ("cc1plus", "SIGBUS"),
    "g++: internal compiler error: Segmentation fault signal terminated program cc1plus":
        ("cc1plus", "SIGSEGV"),
    "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)": ("cicc", "SIGSEGV"),
    "subprocess.CalledProcessError: Command '['/b/ops', '-c']' died with <Signals.SIGSEGV: 11>.":
        ("/b/ops", "SIGSEGV"),
    "error: command '/t/bin/g++' failed with exit code -11": ("/t/bin/g++", "SIGSEGV"),
    "a compiling process was ended by SIGSEGV (jetship)": ("a compiling process", "SIGSEGV"),
    "FAILED: [code=139] build/op.o \nc++ -c op.cpp": ("the compiler of build/op.o", "SIGSEGV"),
    "make: *** [Makefile:2: x] Segmentation fault": ("a program", "SIGSEGV"),
    "Segmentation fault (core dumped)": ("a program", "SIGSEGV"),
}  # fmt: skip
NETWORK = [
    "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>",
    "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
    "curl: (6) Could not resolve host: nohost.invalid",
    "curl: (7) Failed to connect to 127.0.0.1 port 9 after 0 ms: Couldn't connect to server",
    "wget: unable to resolve host address 'nohost.invalid'",
    "fatal: unable to access 'https://nohost.invalid/x/': Could not resolve host: nohost.invalid",
    "ssh: Could not resolve hostname nohost.invalid: Name or service not known",
    "ConnectionError: HTTPSConnectionPool(host='nohost.invalid', port=443): Max retries exceeded",
    "WARNING: Retrying after connection broken by '<X>: Failed to establish a new connection: '",
    "OSError: [Errno 101] Network is unreachable",
]
MACHINE = {
    f"{LD}: x86.o: Relocations in generic ELF (EM: 62)\n"
    f"{LD}: x86.o: error adding symbols: file in wrong format": "x86.o",
    f"{LD}: ./libx86.so: error adding symbols: file in wrong format": "./libx86.so",
    "/usr/bin/ld: lib/x86.a(f.o): file not recognized: file in wrong format": "lib/x86.a(f.o)",
    f"{LD}: skipping incompatible ./libx86.so when searching for -lx86\n"
    f"{LD}: cannot find -lx86: No such file or directory\n"
    f"{LD}: skipping incompatible ./libx86.so when searching for -lx86\n"
    "collect2: error: ld returned 1 exit status": "./libx86.so",
}
ASKED = "nvidia-smi: the GPU of sm62-debian-12 is not here to be asked (jetship)\n"
UNGUARDED = (
    ASKED + "Traceback (most recent call last):\n"
    "subprocess.CalledProcessError: Command '['nvidia-smi']' returned non-zero exit status 9."
)
COMPILER = "src/bad.cpp:4:10: error: 'factor' was not declared in this scope\n"
NVCC = 'src/bad.cu(3): error: identifier "faktor" is undefined\n'

OWN = {
    "ModuleNotFoundError: No module named 'pybind11.setup_helpers'":
        ("imports pybind11 while", "`requires` under [build-system]"),
    "EOFError: EOF when reading a line": ("asks a question", "`env` in deploy.yaml"),
    "packaging.version.InvalidVersion: Invalid version: '1.0-foo_bar+zz'":
        ("'1.0-foo_bar+zz' is not a version", "1.0+local.words"),
    "AssertionError: needs PyTorch >= 2.8": ("refuses the torch", "`invoke targets`"),
    "RuntimeError: torch version 1.13 or newer is needed": ("refuses the", "platform"),
}  # fmt: skip
OTHERS = [
    "",
    COMPILER,
    "RuntimeError: libfancy is not installed",
    "op.cpp:7:26: error: expected '{' before 'std'\n    7 | } catch (const std::bad_alloc& e)\n",
    "op.cpp:3:1: note: `Killed` is declared here\nop.cpp:4:1: error: no",
    "class MemoryErrorHandler: pass\nRuntimeError: no MemoryError here",
    f"{LD}: skipping incompatible /a/libm.so when searching for -lm\n{LD}: cannot find -lmissing",
    "ptxas error   : Entry function 'f' uses too much shared data (0x10000 bytes, 0xc000 max)",
    "undefined reference to `nvidia_smi'",
    "warning: nvidia-smi: command not found",
]  # fmt: skip


def find_cause(log: str, jobs: str, status: int = 1) -> Cause | None:
    return find(Said(log, jobs, status))


@pytest.mark.parametrize(("log", "program"), MEMORY.items(), ids=lambda text: text[:30])
def test_memory_that_runs_out_is_told_with_the_jobs_that_took_it(log, program):
    cause = find_cause(f"building\n{log}\nmore", "4")
    assert cause.what == f"the build ran out of memory in {program}, with MAX_JOBS=4"
    assert cause.fix == "set MAX_JOBS to less than 4"


def test_one_job_alone_cannot_be_made_fewer():
    (log, *_) = MEMORY
    assert find_cause(log, "1").fix == "build on a machine with more memory"


@pytest.mark.parametrize("log", NETWORK, ids=lambda text: text[:30])
def test_a_network_that_does_not_answer_is_told(log):
    cause = find_cause(f"running build_ext\n{log}\n", "2")
    assert "on the network" in cause.what
    assert "before_build" in cause.fix


@pytest.mark.parametrize(("log", "file"), MACHINE.items(), ids=lambda text: text[-30:])
def test_a_file_of_another_machine_is_named(log, file):
    cause = find_cause(log, "2")
    assert cause.what.startswith(f"the linker was given {file}, which is for another machine")
    assert cause.fix


def test_a_project_that_insists_on_nvidia_smi_is_told_how_to_do_without():
    cause = find_cause(UNGUARDED, "2")
    assert "asks nvidia-smi" in cause.what
    assert "TORCH_CUDA_ARCH_LIST" in cause.fix


@pytest.mark.parametrize(("error", "words"), OWN.items(), ids=lambda text: text[:30])
def test_what_the_project_itself_can_mend_is_said(error, words):
    log = f'Traceback (most recent call last):\n  File "<string>", line 4, in <module>\n{error}\n'
    cause = find_cause(log, "2")
    assert words[0] in cause.what
    assert words[1] in cause.fix
    assert cause.why == f"setup.py, line 4: {error}"
    assert find_cause(f"{log}went on without\nRuntimeError: no grammar\n", "2") is None


def test_a_module_of_the_project_itself_is_not_asked_of_the_index(tmp_path):
    (tmp_path / "helpers.py").touch()
    log = "ModuleNotFoundError: No module named 'helpers'\n"
    cause = find(Said(log, "2", folder=f"{tmp_path}/"))
    assert "setuptools.build_meta:__legacy__" in cause.fix
    assert find_cause("ModuleNotFoundError: No module named 'torch.nowhere'\n", "2") is None


@pytest.mark.parametrize("log", OTHERS, ids=lambda text: text[:30] or "empty")
def test_what_is_no_such_cause_is_not_called_one(log):
    assert find_cause(log, "2") is None


@pytest.mark.parametrize("error", [COMPILER, NVCC])
@pytest.mark.parametrize("before", [ASKED, *NETWORK[:2]])
def test_what_a_project_went_on_without_is_not_why_its_code_does_not_compile(before, error):
    assert find_cause(f"{before}\nno GPU, going on\n{error}", "2") is None


def test_memory_counts_although_compilers_complain_because_of_it():
    (log, *_) = MEMORY
    assert "out of memory" in find_cause(COMPILER + log, "2").what


@pytest.mark.parametrize("log", KILLED, ids=lambda text: text[:30])
def test_what_was_killed_ran_out_of_memory_probably(log):
    cause = find_cause(f"building\n{log}\nmore", "4")
    assert "SIGKILL" in cause.what
    assert cause.what.endswith("probably because memory ran out, with MAX_JOBS=4")
    assert cause.fix == "set MAX_JOBS to less than 4"


@pytest.mark.parametrize(("log", "named"), CRASHED.items(), ids=lambda text: text[:30])
def test_a_program_that_crashes_is_named_with_its_signal_and_is_not_the_projects_fault(log, named):
    cause = find_cause(f"building\n{log}\nmore", "4")
    program, name = named
    assert cause.what == f"{program} crashed ({name}), with MAX_JOBS=4"
    assert "MAX_JOBS=1" in cause.fix
    assert REPORT in cause.fix


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (-9, "SIGKILL ended its process, probably because memory ran out, with MAX_JOBS=2"),
        (-11, "the build crashed: SIGSEGV ended its process"),
        (-15, "somebody sent SIGTERM to its process"),
        (-42, "signal 42 ended its process"),
        (0, "ended, with success, and made no wheel"),
    ],
)
def test_the_end_of_the_process_is_a_cause_where_nothing_else_is(status, words):
    assert words in find_cause("running build_ext\n", "2", status).what
    assert "out of memory in cicc" in find_cause(
        "nvcc error   : 'cicc' died due to signal 9 (Kill signal)", "2", status
    ).what  # fmt: skip


NO_WHEEL = """\
running egg_info
no CUDA here: nothing to be built
Traceback (most recent call last):
  File "/env/setuptools/build_meta.py", line 125, in _file_with_extension
    raise ValueError(
ValueError: No distribution was found. Ensure that `setup.py` is not empty ...
"""


def test_a_setup_py_that_makes_no_wheel_is_told_with_its_last_words():
    cause = find_cause(NO_WHEEL, "2")
    assert cause.what == "the project's setup.py ended, with success, and made no wheel"
    assert cause.why == "the last that it said: no CUDA here: nothing to be built"
    assert find_cause("", "2", 0).why == "it said nothing"


# As Python prints it for a setup.py that imports a module of its own.
DOWNLOADS = """\
Traceback (most recent call last):
  File "/usr/lib/python3.11/urllib/request.py", line 1348, in do_open
    h.request(req.get_method(), req.selector, req.data, headers,
ConnectionRefusedError: [Errno 111] Connection refused

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/env/setuptools/build_meta.py", line 317, in run_setup
    exec(code, locals())
  File "<string>", line 7, in <module>
%s  File "/usr/lib/python3.11/urllib/request.py", line 1351, in do_open
    raise URLError(err)
urllib.error.URLError: <urlopen error [Errno 111] Connection refused>
"""
OF_A_MODULE = '  File "/src/ops/tools/fetch.py", line 3, in kernels\n    urlopen(URL)\n'


@pytest.mark.parametrize(
    ("frames", "place"),
    [("", "setup.py, line 7"), (OF_A_MODULE, "/src/ops/tools/fetch.py, line 3")],
)
def test_of_a_traceback_the_line_of_the_project_and_the_reason_are_shown(frames, place):
    cause = find(Said(DOWNLOADS % frames, "2", folder="/src/ops/"))
    reason = "urllib.error.URLError: <urlopen error [Errno 111] Connection refused>"
    assert cause.why == f"{place}: {reason}"


def test_the_program_that_did_not_reach_the_network_says_so_itself():
    log = "running build_ext\ncurl: (6) Could not resolve host: nohost.invalid\nmore\n"
    assert find_cause(log, "2").why == "curl: (6) Could not resolve host: nohost.invalid"


# As the stand-in prints them.
UNANSWERED = """\
note: setup.py, line 3 was told that there is no torch.zeros
Traceback (most recent call last):
  File "<string>", line 3, in <module>
  File "/x/jetship/build/standin/torch/_standin.py", line 57, in __getattr__
    raise unanswered("%s.%s" % (module, name))
AttributeError: setup.py, line 3 asks for torch.zeros of torch 2, which jetship cannot answer for s.
"""
DEFECT = """\
Traceback (most recent call last):
  File "<string>", line 3, in <module>
  File "/x/jetship/build/standin/torch/cuda/__init__.py", line 70, in get_device_capability
    return tuple(FACTS["code"][device])
                 ~~~~~^^^^^^^^
KeyError: 'code'
"""
AS_TORCH = DEFECT.replace("return tuple", "raise AssertionError").replace(
    "KeyError", "AssertionError"
)
THROUGH_IT = DEFECT.replace(
    "KeyError", '  File "/env/setuptools/build_ext.py", line 9, in run\n    build()\nKeyError'
)
OF_THE_PROJECT = DEFECT.replace("jetship/build/standin/torch", "ops/torch")


def test_what_the_stand_in_cannot_answer_is_to_be_reported_and_not_mended():
    cause = find_cause(UNANSWERED, "2")
    assert cause.what == "the project asks of torch what jetship cannot answer"
    assert cause.why == "setup.py, line 3 asks for torch.zeros of torch 2"
    assert cause.fix.endswith(REPORT)
    assert find_cause(UNANSWERED.partition("Traceback")[0] + COMPILER, "2") is None


def test_a_defect_of_the_stand_in_is_jetships_own():
    cause = find_cause(DEFECT, "2")
    assert (cause.why, cause.fix) == ("KeyError: 'code'", REPORT)
    assert "no fault of the project" in cause.what


@pytest.mark.parametrize("log", [AS_TORCH, THROUGH_IT, OF_THE_PROJECT])
def test_what_the_stand_in_raises_as_torch_does_or_calls_is_the_projects_matter(log):
    assert find_cause(log, "2") is None
