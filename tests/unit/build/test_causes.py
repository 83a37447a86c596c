"""Causes of failures in what real programs print; each line below was printed by one."""

import pytest
from jetship.build.causes import find_cause

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

OTHERS = [
    "",
    COMPILER,
    "RuntimeError: libfancy is not installed",
    "op.cpp:7:26: error: expected '{' before 'std'\n    7 | } catch (const std::bad_alloc& e)\n",
    "op.cpp:3:1: note: `Killed` is declared here\nop.cpp:4:1: error: no",
    "class MemoryErrorHandler: pass\nRuntimeError: no MemoryError here",
    f"{LD}: skipping incompatible /a/libm.so when searching for -lm\n{LD}: cannot find -lmissing",
    "ptxas error   : Entry function 'f' uses too much shared data (0x10000 bytes, 0xc000 max)",
    "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
    "undefined reference to `nvidia_smi'",
    "warning: nvidia-smi: command not found",
]  # fmt: skip


@pytest.mark.parametrize(("log", "program"), MEMORY.items(), ids=lambda text: text[:30])
def test_memory_that_runs_out_is_told_with_the_jobs_that_took_it(log, program):
    cause = find_cause(f"building\n{log}\nmore", "4")
    assert cause.what == f"the build ran out of memory in {program}, with MAX_JOBS=4"
    assert cause.fix == "set MAX_JOBS to less than 4"


def test_one_job_alone_cannot_be_made_fewer():
    (log, *_) = MEMORY
    assert find_cause(log, "1").fix == "build on a machine with more"


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
