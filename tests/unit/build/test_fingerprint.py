import dataclasses
import os
import sys

import pytest
from jetship.build.fingerprint import fingerprint
from jetship.build.project import Project
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.resolve import resolve

SETUP = "import os\nflavour = os.environ.get('OPS_FLAVOUR')\n"


@pytest.fixture
def project(tmp_path, write):
    files = {"setup.py": SETUP, "src/op.cu": "code", "tool.sh": "make $TOOL_MODE", "a.md": "OTHER"}
    return Project(write(tmp_path / "ops", files), "ops")


@pytest.fixture
def ask(project, target, toolchain):
    """Return the digest, with another of its inputs where one is given."""

    def ask(*, target=target, toolchain=toolchain, settings=None, **environ) -> str:
        return fingerprint(project, target, toolchain, settings or BuildSettings(), environ)

    return ask


CHANGES = {
    "content": lambda top: (top / "src/op.cu").write_text("c0de"),
    "exec bit": lambda top: (top / "tool.sh").chmod(0o755),
    "new file": lambda top: (top / "src/new.h").touch(),
    "deleted file": lambda top: (top / "a.md").unlink(),
    "other name": lambda top: (top / "src/op.cu").rename(top / "src/op2.cu"),
    "symlink": lambda top: (top / "src/link").symlink_to("op.cu"),
    "dangling symlink": lambda top: (top / "link").symlink_to("nowhere"),
    "symlink to a folder": lambda top: (top / "link").symlink_to("src"),
    "build folder below": lambda top: (top / "src/build").write_text(""),
}
NO_CHANGES = {
    "history": lambda top: [(top / ".git").mkdir(), (top / ".git/HEAD").touch()],
    "times": lambda top: os.utime(top / "src/op.cu", (1, 1)),
    "build at top": lambda top: [(top / "build").mkdir(), (top / "build/op.o").touch()],
    "dist at top": lambda top: [(top / "dist").mkdir(), (top / "dist/o.whl").touch()],
    "egg-info": lambda top: [(top / "o.egg-info").mkdir(), (top / "o.egg-info/x").touch()],
    "caches": lambda top: [(top / "src/__pycache__").mkdir(), (top / "src/__pycache__/x").touch()],
    "read only": lambda top: (top / "src/op.cu").chmod(0o444),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_whatever_a_build_sees_of_the_project_counts(ask, project, change):
    before = ask()
    change(project.folder)
    assert ask() != before


@pytest.mark.parametrize("change", NO_CHANGES.values(), ids=NO_CHANGES)
def test_what_no_build_sees_does_not_count(ask, project, change):
    before = ask()
    change(project.folder)
    assert ask() == before


def test_a_name_that_is_not_utf_8_counts_as_any_other(ask, project):
    names = [ask()]
    for name in (b"\xff", b"\xfe"):
        (project.folder / os.fsdecode(b"odd" + name)).touch()
        names.append(ask(OPS_FLAVOUR=os.fsdecode(name)))
    assert len(set(names)) == len(names)


def test_a_link_that_turns_to_another_file_counts(ask, project):
    top = project.folder
    (top / "same.cu").write_text("code")
    (top / "link").symlink_to("same.cu")
    before = ask()
    (top / "link").unlink()
    (top / "link").symlink_to("src/op.cu")
    assert ask() != before


def test_what_links_out_of_the_project_lead_to_counts(ask, project, tmp_path, write):
    write(tmp_path / "common", {"deep/op.h": "1", "README.md": "words"})
    (project.folder / "common").symlink_to("../common")
    (project.folder / "README.md").symlink_to("../common/README.md")
    before = ask()
    assert ask() == before
    (tmp_path / "common/deep/op.h").write_text("2")
    after = ask()
    assert after != before
    (tmp_path / "common/README.md").write_text("other words")
    assert ask() != after


def test_a_folder_that_links_to_itself_ends(ask, project):
    before = ask()
    (project.folder / "src/loop").symlink_to("..")
    assert ask() != before


def test_the_place_of_the_project_does_not_count(ask, project, target, toolchain, tmp_path):
    before = ask()
    project.folder.rename(tmp_path / "moved")
    moved = Project(tmp_path / "moved", "ops")
    assert fingerprint(moved, target, toolchain, BuildSettings(), {}) == before


def test_target_toolchain_and_settings_count(ask, catalog, fat_target, toolchain):
    other = dataclasses.replace(toolchain, root=toolchain.root.with_name("toolchain-2"))
    found = [
        ask(),
        ask(target=fat_target),
        ask(target=resolve(catalog, arch="7.2")[0]),
        ask(toolchain=other),
        ask(settings=BuildSettings(env={"A": "1"})),
        ask(settings=BuildSettings(before_build=(("true",),))),
        ask(settings=BuildSettings(constraints=("cmake<4",))),
    ]
    assert len(set(found)) == len(found)


def test_variables_that_the_project_mentions_count_and_no_others(ask):
    before = ask()
    assert ask(HOME="/x", TERM="y", OTHER="z") == before
    assert ask(OPS_FLAVOUR="1") != before
    assert ask(OPS_FLAVOUR="1") != ask(OPS_FLAVOUR="2")
    assert ask(TOOL_MODE="1") != before
    assert ask(SOURCE_DATE_EPOCH="1") != before


def test_variables_of_setuptools_scm_count_though_no_project_mentions_them(ask):
    assert ask(SETUPTOOLS_SCM_PRETEND_VERSION_FOR_OPS="1.0") != ask()


def test_jetships_own_build_stage_counts(ask, monkeypatch):
    before = ask()
    monkeypatch.setattr(
        sys.modules[fingerprint.__module__], "_own_code", lambda: iter(["api.py 0"])
    )
    assert ask() != before
