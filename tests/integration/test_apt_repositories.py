"""Parts out of any apt repositories: packages that depend on each other's, and their keys."""

import shutil
from pathlib import Path

import pytest
from aptrepository import AptRepository, fresh_keys
from jetship import yamlfile
from jetship.errors import DownloadError
from jetship.store import Store
from jetship.targets.catalog import Catalog
from jetship.toolchain import debian
from jetship.toolchain.lock import Lock
from product import ROOT, invoke

PLATFORM = (ROOT / "toolchains/platforms/debian-12.yaml").read_text()
TEGRA = "usr/lib/aarch64-linux-gnu/tegra"
LOCK_NAME = "apt/debian-bookworm+l4t-r36.4+acme/arm64"
PART = """\
parts:
  sysroot-demo:
    kind: sysroot
    title: Debian 12 and two more
    apt:
      - architecture: arm64
        repositories:
"""
DEBIAN = "{suites: [bookworm]}"


@pytest.fixture(scope="session")
def keys():
    with fresh_keys("nvidia", "acme", "stranger") as made:
        yield made


@pytest.fixture
def l4t(tmp_path, keys) -> AptRepository:
    """A repository whose package needs Debian's libc6 and another repository's package."""
    repository = AptRepository(tmp_path / "l4t", keys, "r36.4")
    repository.add(
        "nvidia-l4t-demo", {f"{TEGRA}/libdemo.so": "demo", "opt/nvidia/demo": "1"},
        version="1:36.4.3-20250107", depends="libc6 (>= 2.34), acme-common (>= 2)",
    )  # fmt: skip
    repository.publish("nvidia")
    keys.export("nvidia", tmp_path / "nvidia.asc")
    return repository


@pytest.fixture
def acme(tmp_path, keys) -> AptRepository:
    """A flat repository, with a key that is not armoured."""
    repository = AptRepository(tmp_path / "acme", keys, "./")
    repository.add("acme-common", {"etc/acme": "old"}, version="1.0")
    repository.add("acme-common", {"etc/acme": "new"}, version="2.0")
    repository.publish("acme")
    keys.export("acme", tmp_path / "acme.gpg")
    return repository


@pytest.fixture
def describe(tmp_path):
    """Write the user's file: the part, and a platform with it."""

    def write(*repositories: str, install: str = "nvidia-l4t-demo") -> Path:
        rows = "".join(f"          - {one}\n" for one in repositories)
        platform = PLATFORM.replace("name: debian-12", "name: demo-1.0")
        platform = platform.replace("sysroot: sysroot-bookworm", "sysroot: sysroot-demo")
        assert "sysroot-demo" in platform
        lines = "".join(f"    {line}\n" for line in platform.splitlines())
        path = tmp_path / "my-boards.yaml"
        path.write_text(f"{PART}{rows}        install: [{install}]\nplatforms:\n  -\n{lines}")
        return path

    return write


def row(repository: AptRepository, name: str, key: str, more: str = "") -> str:
    """Return a repository as a user describes it."""
    uri, suite = repository.uri, repository.suite
    return f"{{name: {name}, uri: '{uri}', suites: [{suite}], signed_by: {key}{more}}}"


@pytest.fixture
def caches(toolchain, tmp_path):
    """Make caches that have every part but the one of the test, and no package lists."""

    def make(name: str) -> dict[str, str]:
        root = tmp_path / name
        (root / "trees").mkdir(parents=True)
        for tree in toolchain.root.parent.iterdir():
            (root / "trees" / tree.name).symlink_to(tree)
        return {"JETSHIP_CACHE": str(root)}

    return make


def pins(file: Path, cache: dict[str, str]):
    return invoke("pins", "--part", "sysroot-demo", "--targets-file", file, **cache)


def prepare(file: Path, cache: dict[str, str]):
    words = ("--arch", "6.2", "--platform", "demo-1.0", "--targets-file", file, "--json")
    return invoke("toolchain", *words, **cache)


def sysroot_of(done) -> Path:
    (toolchain,) = done.good().json["toolchains"]
    return Path(toolchain["sysroot"])


def locked(file: Path):
    return yamlfile.load(file.parent / "locks/sysroot-demo.yaml", Lock).sources


def test_packages_of_three_repositories_become_one_sysroot(l4t, acme, describe, caches):
    file = describe(
        DEBIAN, row(l4t, "l4t", "nvidia.asc"), row(acme, "acme", "acme.gpg"),
        install="libc6-dev, libstdc++6, libgomp1, libatomic1, nvidia-l4t-demo",
    )  # fmt: skip
    cache = caches("cache")
    pins(file, cache).good()
    (files,) = locked(file).values()
    assert list(locked(file)) == [LOCK_NAME]
    found = {one.name: one for one in files}
    assert {"libc6", "linux-libc-dev", "gcc-12-base"} <= found.keys()
    assert found["acme-common"].version == "2.0"
    assert found["nvidia-l4t-demo"].version == "1:36.4.3-20250107"
    # Named as over HTTP, so that the lock holds where the repository moves to.
    assert found["nvidia-l4t-demo"].file == "nvidia-l4t-demo_1%3a36.4.3-20250107_arm64.deb"
    sysroot = sysroot_of(prepare(file, cache))
    assert (sysroot / TEGRA / "libdemo.so").read_text() == "demo"
    assert (sysroot / "opt/nvidia/demo").read_text() == "1"
    assert (sysroot / "etc/acme").read_text() == "new"
    assert (sysroot / "usr/lib/aarch64-linux-gnu/libc.so.6").is_file()
    assert "nothing has changed" in pins(file, cache).good().stdout
    # Another machine makes the same of the lock file, with nothing but the network.
    other = sysroot_of(prepare(file, caches("other")))
    assert other.resolve().name == sysroot.resolve().name
    assert (other / TEGRA / "libdemo.so").read_text() == "demo"


@pytest.fixture
def single(acme, describe) -> Path:
    """The user's file with one repository alone, which is quickly read."""
    return describe(row(acme, "acme", "acme.gpg"), install="acme-common")


@pytest.fixture
def refused(caches):
    """Return the one error of `pins`, having made sure that nothing was locked."""

    def ask(file: Path, status: int = 5) -> str:
        error = pins(file, caches("cache")).one_error(status)
        assert not (file.parent / "locks").exists()
        return error

    return ask


def test_a_key_that_does_not_sign_the_repository(l4t, acme, describe, refused, tmp_path):
    l4t.keys.export("stranger", tmp_path / "stranger.asc")
    file = describe(row(acme, "acme", "acme.gpg"), row(l4t, "l4t", "stranger.asc"))
    error = refused(file)
    assert f"{l4t.uri} r36.4 is signed with the key " in error
    assert f"which is not in {tmp_path}/stranger.asc" in error
    assert "get the public key" in error


def test_a_repositorys_key_vouches_for_no_other(l4t, acme, describe, refused, tmp_path):
    # Both keys are known, and each is named for the other's repository.
    file = describe(row(acme, "acme", "nvidia.asc"), row(l4t, "l4t", "acme.gpg"))
    assert "which is not in" in refused(file)


def test_a_key_that_is_not_there(single, tmp_path):
    (tmp_path / "acme.gpg").unlink()
    done = pins(single, {})
    assert done.status == 2
    assert f"{single}:8:" in done.stderr
    assert f"the key {tmp_path}/acme.gpg cannot be read (No such file" in done.stderr
    assert "get the repository's public key from its publisher" in done.stderr


def test_a_list_that_was_changed_after_it_was_signed(single, acme, refused):
    signed = acme.lists / "InRelease"
    signed.write_text(signed.read_text().replace("Suite: ./", "Suite: x/"))
    error = refused(single)
    assert "was changed after it was signed" in error
    assert "do not trust that address" in error


def test_packages_that_are_not_those_of_the_signed_list(single, acme, refused):
    (acme.lists / "Packages").write_text("Package: evil\n")
    assert "Hash Sum mismatch" in refused(single)


def test_a_repository_that_is_not_signed(single, acme, refused):
    (acme.lists / "InRelease").unlink()
    error = refused(single)
    assert "is not signed at all" in error
    assert "taken on trust" in error


def test_a_repository_that_is_not_there(single, acme, refused):
    shutil.rmtree(acme.folder)
    assert f"there is no repository at that address, or it has no such suite: {acme.uri}" in (
        refused(single)
    )


def test_a_repository_that_does_not_answer(acme, describe, refused):
    text = row(acme, "acme", "acme.gpg").replace(acme.uri, "http://127.0.0.1:9/acme")
    error = refused(describe(text, install="acme-common"))
    assert "Could not connect to 127.0.0.1:9" in error
    assert "check the network" in error


def test_a_suite_that_a_repository_has_not(l4t, describe, refused):
    file = describe(row(l4t, "l4t", "nvidia.asc").replace("[r36.4]", "[r36.4, r36.9]"))
    error = refused(file)
    assert f"it has no such suite: {l4t.uri} r36.9" in error
    assert "compare `uri` and `suites`" in error


def test_a_component_that_a_repository_has_not(l4t, describe, refused):
    file = describe(row(l4t, "l4t", "nvidia.asc", ", components: [main, mian]"))
    assert f"{l4t.uri} r36.4 has no component mian" in refused(file)


def test_a_repository_without_packages_of_the_architecture(l4t, describe, refused):
    l4t.publish("nvidia", architecture="amd64")
    error = refused(describe(row(l4t, "l4t", "nvidia.asc")))
    assert "Unable to locate package nvidia-l4t-demo" in error
    assert "l4t r36.4 has no packages for arm64" in error


def test_a_package_that_no_repository_has(l4t, acme, describe, refused):
    file = describe(
        row(acme, "acme", "acme.gpg"), row(l4t, "l4t", "nvidia.asc"), install="nvidia-l4t-dmeo"
    )
    error = refused(file)
    assert "Unable to locate package nvidia-l4t-dmeo; read were acme ./; l4t r36.4" in error
    assert "has no packages" not in error


def test_a_dependency_that_no_repository_has(l4t, describe, refused):
    error = refused(describe(row(l4t, "l4t", "nvidia.asc")))
    assert "nvidia-l4t-demo : Depends: libc6 (>= 2.34) but it is not installable" in error
    assert "Depends: acme-common (>= 2) but it is not installable" in error
    assert "add the suite or the repository" in error
    assert "`alone`" in error


def test_a_package_that_changed_after_it_was_locked(single, acme, caches):
    pins(single, caches("first")).good()
    acme.add("acme-common", {"etc/acme": "evil"}, version="2.0")
    acme.publish("acme")
    second = caches("second")
    error = prepare(single, second).one_error(5)
    assert "acme-common_2.0_arm64.deb has another digest than the lock file" in error
    assert "do not trust" in error
    assert list(Path(second["JETSHIP_CACHE"]).glob("trees/sysroot-demo-*")) == []


def test_a_package_that_is_gone(single, acme, caches):
    pins(single, caches("first")).good()
    (acme.folder / "pool/acme-common_2.0_arm64.deb").unlink()
    acme.publish("acme")
    error = prepare(single, caches("second")).one_error(5)
    assert "Version '2.0' for 'acme-common' was not found" in error
    assert "the archive no longer carries the locked version" in error


def test_a_package_that_was_published_after_the_lists_were_read(single, acme, caches):
    first, second = caches("first"), caches("second")
    pins(single, first).good()
    acme.add("acme-common", {"etc/acme": "newest"}, version="3.0")
    acme.publish("acme")
    pins(single, second).good()
    (files,) = locked(single).values()
    assert [one.version for one in files] == ["3.0"]
    assert (sysroot_of(prepare(single, first)) / "etc/acme").read_text() == "newest"


def test_a_machine_that_takes_packages_on_trust_makes_no_difference(
    single, acme, tmp_path, monkeypatch
):
    (acme.lists / "InRelease").unlink()
    settings = tmp_path / "apt.conf.d"
    settings.mkdir()
    (settings / "trust").write_text('Acquire::AllowInsecureRepositories "true";\n')
    monkeypatch.setattr(debian, "_CONFIG", f'{debian._CONFIG}Dir::Etc::parts "{settings}";\n')
    (source,) = Catalog.load(extra=single).part("sysroot-demo").part.apt
    with pytest.raises(DownloadError) as caught:
        debian.lock_source(Store(tmp_path / "cache"), source)
    assert "is not signed at all" in caught.value.why


def test_a_cache_with_a_space_in_its_path(single, caches):
    pins(single, caches("my cache")).good()
    assert locked(single).keys() == {"apt/acme/arm64"}


def test_a_package_that_two_sources_bring(acme, single, caches):
    twice = f"""      - architecture: arm64
        repositories: [{row(acme, "other", "acme.gpg")}]
        alone: [acme-common]
platforms:
"""
    single.write_text(single.read_text().replace("platforms:\n", twice, 1))
    error = pins(single, caches("cache")).one_error(2)
    assert "acme-common comes from two sources: apt/acme/arm64 and apt/other/arm64" in error
    assert "drop" in error


@pytest.mark.parametrize("key", ["acme.asc", "acme.key"])
def test_a_key_may_be_armoured_and_called_anything(acme, describe, caches, tmp_path, key):
    acme.keys.export("acme", tmp_path / key)
    file = describe(row(acme, "acme", key), install="acme-common")
    pins(file, caches("cache")).good()
