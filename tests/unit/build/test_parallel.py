"""Builds by the real setuptools; the compiler only says when it starts and ends."""

import os
import sys
from pathlib import Path

import ninja
import pytest
from jetship import proc
from jetship.build.environment import STANDIN

# Waits, before it ends, until as many compilers have begun as `WAIT_FOR` says.
COMPILER = """\
import fcntl, os, sys, time
from pathlib import Path

def note(word):
    with open("events", "a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(word + "\\n")

if "-c" not in sys.argv:  # a link
    note("link")
else:
    source = Path(next(word for word in sys.argv if word.endswith(".c"))).name
    note("begin " + source)
    begun = lambda: Path("events").read_text().count("begin")
    for _ in range(600):
        if begun() >= int(os.environ.get("WAIT_FOR", "0")):
            break
        time.sleep(0.05)
    time.sleep(0.1)
    note("end " + source)
    if "bad" in source:
        sys.exit(source + ":1:1: error: it is bad")
made = Path(sys.argv[sys.argv.index("-o") + 1])
if "-c" in sys.argv:
    made.write_text(source + " " + " ".join(w for w in sys.argv if w.startswith("-DNAME")))
else:
    made.write_text(", ".join(Path(w).read_text() for w in sys.argv if w.endswith(".o")))
"""
SETUP = """\
import os, subprocess, sys
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
import _jetship_parallel

class TorchsBuildExtension(build_ext):
    pass

_jetship_parallel.adapt(TorchsBuildExtension)

class WithNinja(TorchsBuildExtension):
    use_ninja = True

    def build_extensions(self):
        # As torch's class: a plan in the folder of the objects, and as many jobs as MAX_JOBS says.
        def by_plan(sources, output_dir=None, **words):
            os.makedirs(output_dir, exist_ok=True)
            output_dir = os.path.abspath(output_dir)
            _, objects, _, options, _ = self.compiler._setup_compile(
                output_dir, words["macros"], words["include_dirs"], sources, None, None)
            with open(os.path.join(output_dir, "build.ninja"), "w") as stream:
                stream.write("rule cc\\n  command = cd %%s && %%s %%s -c $in -o $out\\n" %% (
                    os.getcwd(), self.compiler.compiler[0], " ".join(options)))
                for source, made in zip(sources, objects):
                    stream.write("build %%s: cc %%s\\n" %% (made, os.path.abspath(source)))
            command = ["ninja", "-C", output_dir, "-j", os.environ["MAX_JOBS"]]
            subprocess.run(command, check=True)
            return objects
        self.compiler.compile = by_plan
        super().build_extensions()

class Own(TorchsBuildExtension):
    def build_extension(self, ext):
        super().build_extension(ext)

setup(
    name="ops",
    version="1",
    ext_modules=[
        Extension(
            name, files.split(","), define_macros=[("NAME", name)], optional="optional" in name
        )
        for name, files in (word.split("=") for word in %r)
    ],
    cmdclass={"build_ext": %s},
    script_args=["build_ext", "--inplace", *%r],
)
"""


@pytest.fixture
def build(tmp_path):
    """Build extensions; returns how it ended, and what the compilers noted."""
    compiler = tmp_path / "compiler"
    compiler.write_text(f"#!{sys.executable}\n{COMPILER}")
    compiler.chmod(0o755)

    def build(
        *extensions: str, jobs: int, wait_for: int = 0, command="TorchsBuildExtension", words=()
    ):
        for extension in extensions:
            for name in extension.partition("=")[2].split(","):
                (tmp_path / name).touch()
        (tmp_path / "setup.py").write_text(SETUP % (list(extensions), command, words))
        env = {
            "PATH": f"{ninja.BIN_DIR}:{os.defpath}",
            "MAX_JOBS": str(jobs), "WAIT_FOR": str(wait_for),
            "PYTHONPATH": str(STANDIN), "CC": str(compiler), "LDSHARED": str(compiler),
        }  # fmt: skip
        done = proc.run([sys.executable, "setup.py"], cwd=tmp_path, env=env, seconds=120)
        return done, (tmp_path / "events").read_text().splitlines()

    return build


def most_at_once(events: list[str]) -> int:
    running, most = 0, 0
    for event in events:
        running += event.startswith("begin") - event.startswith("end")
        most = max(most, running)
    return most


def built(folder: Path) -> list[str]:
    return sorted(path.name.partition(".")[0] for path in folder.glob("*.so"))


def test_the_sources_of_an_extension_are_compiled_at_once(build, tmp_path):
    done, events = build("ops=a.c,b.c,c.c,d.c,e.c", jobs=3, wait_for=3)
    assert done.ok, done.stderr
    assert most_at_once(events) == 3
    assert events.count("link") == 1
    assert events[-1] == "link"
    assert built(tmp_path) == ["ops"]


def test_extensions_are_built_at_once_with_no_more_compilers_than_asked_for(build, tmp_path):
    done, events = build("one=a.c,b.c", "two=c.c,d.c", "three=e.c", jobs=4, wait_for=4)
    assert done.ok, done.stderr
    assert most_at_once(events) == 4
    assert len([event for event in events if event.startswith("begin")]) == 5
    assert built(tmp_path) == ["one", "three", "two"]


def test_with_one_job_all_is_as_setuptools_does_it(build, tmp_path):
    done, events = build("one=a.c,b.c", "two=c.c", jobs=1)
    assert done.ok, done.stderr
    assert most_at_once(events) == 1
    assert [event for event in events if event.startswith("begin")] == [
        "begin a.c", "begin b.c", "begin c.c"
    ]  # fmt: skip


def test_a_source_that_does_not_compile_ends_the_build_with_the_compilers_words(build, tmp_path):
    done, events = build("ops=a.c,bad.c,c.c", jobs=2)
    assert not done.ok
    assert "bad.c:1:1: error: it is bad" in done.stderr
    assert "1 of 3 files did not compile" in done.stderr
    assert "link" not in events
    assert built(tmp_path) == []


def test_an_extension_that_does_not_build_is_reported(build, tmp_path):
    done, _ = build("one=a.c,b.c", "two=bad.c", jobs=2)
    assert not done.ok
    assert "bad.c:1:1: error: it is bad" in done.stderr
    assert "1 of 2 extensions were not built" in done.stderr
    assert built(tmp_path) == []


def test_a_project_that_builds_extensions_its_own_way_gets_them_one_by_one(build, tmp_path):
    done, events = build("one=a.c,b.c", "two=c.c,d.c", jobs=4, wait_for=2, command="Own")
    assert done.ok, done.stderr
    assert most_at_once(events) == 2
    assert events.index("link") < events.index("begin c.c")
    assert built(tmp_path) == ["one", "two"]


def test_extensions_of_one_file_are_compiled_at_once_with_ninja(build, tmp_path):
    names = [f"ext{number}" for number in range(6)]
    done, events = build(
        *(f"{name}={name}.c" for name in names), jobs=3, wait_for=3, command="WithNinja"
    )
    assert done.ok, done.stderr
    assert most_at_once(events) == 3
    assert events.count("link") == 6
    assert built(tmp_path) == names


def test_ninjas_together_run_no_more_compilers_than_asked_for(build, tmp_path):
    done, events = build(
        "one=a.c,b.c,c.c,d.c", "two=e.c,f.c", "three=g.c", "four=h.c,i.c,j.c", "five=k.c",
        jobs=3, command="WithNinja",
    )  # fmt: skip
    assert done.ok, done.stderr
    assert most_at_once(events) <= 3
    assert len([event for event in events if event.startswith("begin")]) == 11
    assert built(tmp_path) == ["five", "four", "one", "three", "two"]


@pytest.mark.parametrize("command", ["TorchsBuildExtension", "WithNinja"])
def test_extensions_that_share_a_source_have_an_object_each(build, tmp_path, command):
    done, _ = build("one=a.c,same.c", "two=b.c,same.c", jobs=4, command=command)
    assert done.ok, done.stderr
    (one,), (two,) = tmp_path.glob("one*.so"), tmp_path.glob("two*.so")
    assert one.read_text() == "a.c -DNAME=one, same.c -DNAME=one"
    assert two.read_text() == "b.c -DNAME=two, same.c -DNAME=two"


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("command", ["TorchsBuildExtension", "WithNinja", "Own"])
def test_threads_that_a_project_asks_for_keep_to_the_jobs(build, tmp_path, command, jobs):
    extensions = [f"ext{number}={number}.c" for number in range(4)]
    words = ["--parallel", "4"]
    done, events = build(*extensions, jobs=jobs, command=command, words=words)
    assert done.ok, done.stderr
    assert most_at_once(events) <= jobs
    assert len(built(tmp_path)) == 4


def test_an_optional_extension_may_fail(build, tmp_path):
    done, _ = build("one=a.c", "optional=bad.c", jobs=2, words=[])
    assert done.ok, done.stderr
    assert built(tmp_path) == ["one"]


def test_sources_beside_the_project_are_built_one_by_one(build, tmp_path):
    outside = f"../{tmp_path.name}/a.c"
    done, events = build(f"one={outside}", "two=b.c", jobs=2, command="WithNinja")
    assert done.ok, done.stderr
    assert events.index("link") < events.index("begin b.c")


# As a setup.py that has started a program of its own, and builds meanwhile.
IN_CHILDREN = """\
import os, subprocess, sys, time
import _jetship_parallel

own = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
works = [(1, lambda: time.sleep(0.1)), (1, lambda: os.kill(os.getpid(), 9))]
print(_jetship_parallel.in_children(works, 2), own.wait())
"""


@pytest.fixture
def among_children():
    env = {"PATH": os.defpath, "PYTHONPATH": str(STANDIN)}
    return proc.run([sys.executable, "-c", IN_CHILDREN], env=env, seconds=60)


def test_the_end_of_a_program_that_setup_py_started_is_left_to_it(among_children):
    assert among_children.stdout == "1 7\n", among_children.stderr


def test_a_child_that_a_signal_ends_leaves_a_word(among_children):
    assert among_children.stderr == "a compiling process was ended by SIGKILL (jetship)\n"
