"""The compiler cache, with the real ccache in front of this machine's own compiler."""

import os
import sysconfig
from pathlib import Path

import pytest
from jetship import proc
from jetship.build import compilercache
from jetship.build.compilercache import CacheUse, cache_use, variables
from jetship.errors import ToolMissingError


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "compilations"


def test_the_cache_lies_in_the_store_and_paths_are_relative_to_it(store, log):
    given = variables(store, log, {})
    assert given["CCACHE_DIR"] == f"{store.root}/ccache"
    assert given["CCACHE_BASEDIR"] == str(store.root)
    assert given["CCACHE_STATSLOG"] == str(log)
    assert given["CCACHE_MAXSIZE"] == "10G"
    assert given["JETSHIP_CCACHE"] == str(Path(sysconfig.get_path("scripts"), "ccache"))


def test_compilers_complain_of_a_file_by_its_whole_path(store, log):
    env = {"PATH": os.defpath} | variables(store, log, {})
    folder = store.root / "tmp/deep/er"
    folder.mkdir(parents=True)
    (folder.parent / "op.c").write_text("int op(void) { return missing; }\n")
    words = ["gcc", "-c", folder.parent / "op.c", "-o", "op.o"]
    done = proc.run([env["JETSHIP_CCACHE"], *words], cwd=folder, env=env)
    assert f"{folder.parent}/op.c:1:23: error:" in done.stderr


def test_what_the_user_sets_holds(store, log):
    own = {"CCACHE_DIR": "/mine", "CCACHE_MAXSIZE": "1G", "CCACHE_REMOTE_STORAGE": "redis://r"}
    given = variables(store, log, own)
    assert not own.keys() & given.keys()


def test_a_missing_ccache_says_how_to_get_it(store, log, monkeypatch, tmp_path):
    monkeypatch.setattr(compilercache.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="ccache") as caught:
        variables(store, log, {})
    assert caught.value.fix


def test_a_build_that_compiled_nothing_used_nothing(log):
    assert cache_use(log) == CacheUse(0, 0)


def test_the_words_of_the_statistics_log_are_counted(log):
    log.write_text(
        "# a.cpp\ncache_miss\ndirect_cache_miss\nlocal_storage_miss\n"
        "# b.cpp\ndirect_cache_hit\nlocal_storage_hit\n# c.cpp\npreprocessed_cache_hit\n"
        "# -\ncalled_for_link\n"
    )
    assert cache_use(log) == CacheUse(hits=2, misses=1)
    assert str(cache_use(log)) == "2 of 3 objects from the compiler cache"


def test_the_same_source_in_another_folder_is_a_hit(store, log, tmp_path):
    env = {"PATH": os.defpath} | variables(store, log, {})
    seen = []
    for name in ("one", "two"):
        folder = store.root / "tmp" / name
        folder.mkdir(parents=True)
        (folder / "op.c").write_text("int op(void) { return 1; }\nconst char *f = __FILE__;\n")
        # As the toolchain's wrappers do, so that no path of this machine is in an object.
        words = ["-g0", f"-ffile-prefix-map={folder}/=", "-c", folder / "op.c", "-o", "op.o"]
        done = proc.run([env["JETSHIP_CCACHE"], "gcc", *words], cwd=folder, env=env)
        assert done.ok, done.stderr
        seen.append(cache_use(log))
    assert seen == [CacheUse(0, 1), CacheUse(1, 1)]
