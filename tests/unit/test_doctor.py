import os

import pytest
from jetship import doctor, proc
from jetship.doctor import Examined, examine, install, mend
from jetship.errors import ConfigError, ToolMissingError

BAD = Examined("x", "build", ok=False, found="none", fix="f", packages=("x-dev", "y-dev"))


@pytest.fixture
def machine(monkeypatch):
    """Decide what this machine is and has; returns the commands that were run."""

    def install(*, root: bool, programs: set[str], failing: str = "") -> list[list[str]]:
        ran = []

        def run(argv, **_):
            words = [str(word) for word in argv]
            ran.append(words)
            status = 100 if failing and failing in words else 0
            return proc.Finished(tuple(words), status, "", "E: it failed\n" if status else "")

        monkeypatch.setattr(proc, "run", run)
        monkeypatch.setattr(proc, "find", lambda name, *_: name if name in programs else None)
        monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
        return ran

    return install


def test_everything_that_a_task_needs_is_looked_at(store, monkeypatch):
    monkeypatch.setattr(doctor, "find_mirror", lambda: "http://mirror.invalid/debian")
    monkeypatch.setattr(doctor, "_engine", lambda: "28.0 (linux/amd64)")
    rows = examine(store)
    assert {row.needed_for for row in rows} >= {"build", "image and smoke", "smoke"}
    assert all(row.found for row in rows)
    assert all(row.fix for row in rows if not row.ok)
    names = [row.name for row in rows]
    assert len(names) == len(set(names))
    assert not store.root.exists()
    assert rows[0].to_json()["name"] == rows[0].name


def test_a_service_that_does_not_answer_is_said_in_its_own_words(store, monkeypatch):
    def no_mirror():
        raise ConfigError("no archive", fix="name one")

    def no_engine():
        raise ToolMissingError("no engine", why="refused")

    monkeypatch.setattr(doctor, "find_mirror", no_mirror)
    monkeypatch.setattr(doctor, "_engine", no_engine)
    monkeypatch.setattr(doctor.proc, "find", lambda _: None)
    rows = {row.name: row for row in examine(store)}
    assert (rows["Debian archive"].ok, rows["Debian archive"].fix) == (False, "name one")
    engine = rows["Docker engine"]
    assert (engine.ok, engine.found) == (False, "no engine (refused)")
    assert engine.packages == ("docker.io",)


def test_a_small_disk_is_told(store, monkeypatch):
    stat = os.statvfs("/")
    small = os.statvfs_result((*stat[:4], 1, *stat[5:]))
    monkeypatch.setattr(os, "statvfs", lambda _: small)
    row = doctor._space(store)
    assert not row.ok
    assert "JETSHIP_CACHE" in row.fix


@pytest.mark.parametrize(
    ("glibc", "ok"),
    [("glibc 2.35", False), ("glibc 2.36", True), ("glibc 2.40", True), ("", False)],
)
def test_the_toolchains_programs_need_a_new_enough_glibc(monkeypatch, glibc, ok):
    monkeypatch.setattr(os, "confstr", lambda _: glibc)
    assert doctor._glibc().ok == ok


@pytest.mark.parametrize(
    ("text", "ok"), [("enabled\ninterpreter /x\n", True), ("disabled\n", False), (None, False)]
)
def test_emulation_is_what_the_kernel_says(tmp_path, monkeypatch, text, ok):
    path = tmp_path / "qemu-aarch64"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(doctor, "BINFMT_AARCH64", path)
    assert doctor._emulation().ok == ok


def test_what_is_lacking_is_installed_in_one_go(machine):
    ran = machine(root=True, programs={"apt-get"})
    mend([BAD, Examined("z", "build", ok=False, found="none", packages=("z",))])
    assert ran == [
        ["apt-get", "update"],
        ["apt-get", "install", "--yes", "--no-install-recommends", "x-dev", "y-dev", "z"],
    ]


def test_nothing_lacking_is_nothing_done(machine):
    ran = machine(root=False, programs=set())
    mend([Examined("x", "build", ok=False, found="none")])
    install([])
    assert ran == []


def test_without_root_sudo_is_used_where_it_asks_nothing(machine):
    ran = machine(root=False, programs={"apt-get", "sudo"})
    install(["x-dev"])
    assert ran[0] == ["sudo", "--non-interactive", "true"]
    assert ran[-1][:3] == ["sudo", "--non-interactive", "apt-get"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"root": False, "programs": {"apt-get"}}, "needs root"),
        ({"root": False, "programs": {"apt-get", "sudo"}, "failing": "true"}, "needs root"),
        ({"root": True, "programs": set()}, "needs root"),
        ({"root": True, "programs": {"apt-get"}, "failing": "install"}, "could not install x-dev"),
    ],
)
def test_what_cannot_be_installed_is_told_with_the_command(machine, options, words):
    machine(**options)
    with pytest.raises(ToolMissingError, match=words) as caught:
        install(["x-dev"])
    assert "apt-get install --yes --no-install-recommends x-dev" in caught.value.fix
