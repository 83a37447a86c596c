import os
import signal
import subprocess  # noqa: TID251 - one that is killed in the middle
import sys
import threading
import time
from pathlib import Path

import pytest
from jetship import proc
from jetship.errors import ToolMissingError

# Waits for its own child, which takes SIGTERM as the first argument says: "obedient" ends at once,
# "tidy" takes its time to clean up, "deaf" takes no notice.
FAMILY = """\
import subprocess, sys
subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]]).wait()
"""
# Runs two families in two threads, as several targets are built.
TWO_THREADS = """\
import sys, threading
from pathlib import Path
from jetship import proc
family, child, kind, *folders = sys.argv[1:]
if kind == "deaf":
    proc.STOP_GRACE_SECONDS = 0.5
def run(folder):
    proc.run([sys.executable, "-c", family, child, kind, folder])
threads = [threading.Thread(target=run, args=[folder]) for folder in folders]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""
CHILD = """\
import os, signal, sys, time
from pathlib import Path
kind, told = sys.argv[1], Path(sys.argv[2])
def tidy(*_):
    time.sleep(0.3)
    (told / "tidied").touch()
    sys.exit()
if kind != "obedient":
    signal.signal(signal.SIGTERM, signal.SIG_IGN if kind == "deaf" else tidy)
(told / "pid").write_text(str(os.getpid()))
(told / "ready").touch()
time.sleep(60)
(told / "survived").touch()
"""


def python(*words: str, **options) -> proc.Finished:
    return proc.run([sys.executable, *words], **options)


def gone(pid: int) -> bool:
    """Tell whether a process ended; a zombie that nobody has collected did."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def eventually(condition) -> bool:
    """Wait for what another process is about to do; how long that takes is not the test."""
    for _ in range(600):
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_output_is_captured_apart_and_the_status_is_returned():
    done = python("-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert (done.status, done.ok, done.stdout, done.stderr) == (3, False, "out\n", "err\n")
    assert done.argv[0] == sys.executable


def test_output_that_is_not_utf_8_is_still_text():
    assert python("-c", r"import os; os.write(1, b'a\xffb')").stdout == "a\ufffdb"


def test_arguments_reach_the_program_as_they_are(tmp_path):
    strange = ["a b", "$HOME", "`id`", "'", '"', "*", "", "ä;rm"]
    done = python("-c", "import sys; print(sys.argv[1:])", *strange)
    assert done.stdout == f"{strange}\n"


def test_a_program_reads_nothing_from_our_terminal():
    assert python("-c", "import sys; print(repr(sys.stdin.read()))").stdout == "''\n"


def test_the_environment_is_the_given_one_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("JETSHIP_OUTER", "1")
    show = "import os; print(os.environ.get('JETSHIP_OUTER'), os.environ.get('INNER'), os.getcwd())"
    assert python("-c", show, cwd=tmp_path).stdout == f"1 None {tmp_path}\n"
    assert python("-c", show, env={"INNER": "2"}, cwd=tmp_path).stdout == f"None 2 {tmp_path}\n"


def test_a_log_is_appended_to_and_nothing_is_captured(tmp_path):
    log = tmp_path / "log"
    log.write_text("before\n")
    done = python("-c", "import os; os.write(1, b'out\\n'); os.write(2, b'err\\n')", log=log)
    assert log.read_text() == "before\nout\nerr\n"
    assert (done.stdout, done.stderr) == ("", "")


def test_output_that_is_not_kept_goes_to_stderr(capfd):
    done = python("-c", "print('result')", capture=False)
    assert done.stdout == ""
    assert capfd.readouterr() == ("", "result\n")


def test_the_command_line_is_shown_quoted_when_asked_for(monkeypatch, capfd):
    python("-c", "", "a b")
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("JETSHIP_VERBOSE", "1")
    python("-c", "", "a b")
    assert capfd.readouterr().err == f"+ {sys.executable} -c '' 'a b'\n"


def test_a_command_line_for_people_is_one_line_without_a_long_end():
    program = "import torch\n\nfor one in range(3):\n    print(one)\n"
    shown = proc.shown(["python3", "-c", program])
    assert shown == "python3 -c import torch for one in range(3): print(one)"
    long = proc.shown(["python3", "-c", program * 10])
    assert long.startswith("python3 -c import torch for one")
    assert long.endswith(" ...")
    assert len(long) <= proc.SHOWN_LETTERS


def test_a_missing_program_is_a_missing_tool():
    with pytest.raises(ToolMissingError, match="`no-such-program` is not installed") as caught:
        proc.run(["no-such-program"])
    assert caught.value.fix


def test_a_missing_working_folder_is_not_called_a_missing_program(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        python("-c", "", cwd=tmp_path / "nowhere")


@pytest.mark.parametrize(("content", "mode"), [("#!/bin/sh\n", 0o644), ("\0not a program", 0o755)])
def test_a_program_that_cannot_be_executed_is_said_to_be_so(tmp_path, content, mode):
    program = tmp_path / "compiler"
    program.write_text(content)
    program.chmod(mode)
    with pytest.raises(ToolMissingError, match="compiler` cannot be run") as caught:
        proc.run([program])
    assert caught.value.why
    assert caught.value.fix


def test_a_program_is_looked_up_on_the_path_of_the_environment_given(tmp_path):
    program = tmp_path / "helper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert proc.find("helper") is None
    assert proc.find("helper", {"PATH": str(tmp_path)}) == program
    assert proc.find("sh", {"PATH": str(tmp_path)}) is None


def test_an_environment_without_path_finds_only_what_the_system_has(tmp_path, monkeypatch):
    program = tmp_path / "helper"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert proc.find("helper") == program
    assert proc.find("helper", {"HOME": "/"}) is None


def test_a_required_program_says_how_to_get_it():
    assert proc.require("sh", fix="").name == "sh"
    with pytest.raises(ToolMissingError) as caught:
        proc.require("no-such-program", fix="install it")
    assert caught.value.fix == "install it"


@pytest.mark.parametrize("kind", ["obedient", "tidy", "deaf"])
def test_an_interruption_stops_the_program_with_all_that_it_started(tmp_path, monkeypatch, kind):
    if kind == "deaf":
        monkeypatch.setattr(proc, "STOP_GRACE_SECONDS", 0.5)

    def interrupt() -> None:
        eventually((tmp_path / "ready").exists)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            python("-c", FAMILY, CHILD, kind, str(tmp_path))
    finally:
        other.join()
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: gone(pid))
    assert not (tmp_path / "survived").exists()
    assert (tmp_path / "tidied").exists() == (kind == "tidy")


@pytest.mark.parametrize("kind", ["obedient", "tidy", "deaf"])
def test_what_a_killed_jetship_had_started_ends(tmp_path, kind):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    words = [sys.executable, "-c", TWO_THREADS, FAMILY, CHILD, kind, *map(str, folders)]
    with subprocess.Popen(words) as killed:
        assert eventually(lambda: all((folder / "ready").exists() for folder in folders))
        killed.kill()
    for folder in folders:
        pid = int((folder / "pid").read_text())
        assert eventually(lambda pid=pid: gone(pid))
        assert not (folder / "survived").exists()
        assert (folder / "tidied").exists() == (kind == "tidy")


WATCHERS = """\
import os, signal, sys
from pathlib import Path
from jetship import proc
def watchers():
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    return [int(pid) for pid in children]
proc.run(["true"])
proc.run(["true"])
(watcher,) = watchers()
if sys.argv[1:]:
    os.kill(watcher, signal.SIGKILL)
    os.waitid(os.P_PID, watcher, os.WEXITED | os.WNOWAIT)
    print(proc.run(["echo", "ran"]).stdout)
else:
    print(watcher)
"""


def test_one_process_watches_all_programs_and_ends_with_the_last():
    done = python("-c", WATCHERS)
    assert done.ok, done.stderr
    assert gone(int(done.stdout))


def test_programs_are_run_where_what_watches_them_was_killed():
    done = python("-c", WATCHERS, "kill")
    assert done.ok, done.stderr
    assert done.stdout.strip() == "ran"


def test_a_program_that_takes_too_long_is_stopped_with_all_that_it_started(tmp_path):
    with pytest.raises(proc.TimedOutError, match="python"):
        python("-c", FAMILY, CHILD, "obedient", str(tmp_path), seconds=3)
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: gone(pid))
    assert not (tmp_path / "survived").exists()


def test_what_a_program_said_before_it_took_too_long_is_in_the_log(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(proc.TimedOutError):
        python("-c", "import time; print('words', flush=True); time.sleep(60)", log=log, seconds=3)
    assert log.read_text() == "words\n"


def test_a_program_that_ends_in_time_is_as_without_a_limit():
    assert python("-c", "print('out')", seconds=60).stdout == "out\n"


def test_a_stopper_ends_what_other_threads_run_and_lets_them_start_no_more(tmp_path):
    stopper, ended = proc.Stopper(), []

    def work() -> None:
        with proc.with_stopper(stopper):
            for _ in range(2):
                try:
                    python("-c", FAMILY, CHILD, "obedient", str(tmp_path))
                except proc.StoppedError:
                    ended.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    assert eventually((tmp_path / "ready").exists)
    stopper.stop()
    thread.join(60)
    assert ended == ["stopped", "stopped"]
    pid = int((tmp_path / "pid").read_text())
    assert eventually(lambda: gone(pid))
    assert not (tmp_path / "survived").exists()


def test_a_stopper_is_for_its_own_thread_and_body_alone():
    stopper = proc.Stopper()
    with proc.with_stopper(stopper):
        assert python("-c", "").ok
    stopper.stop()
    assert python("-c", "").ok
    with proc.with_stopper(stopper), pytest.raises(proc.StoppedError):
        python("-c", "")
