import hashlib
import os
import time

import pytest
from jetship import proc
from jetship.errors import ConfigError, DownloadError, ToolMissingError
from jetship.targets.parts import AptSource, DebianSource
from jetship.targets.repositories import Repository
from jetship.toolchain import debian
from jetship.toolchain.debian import (
    NOTHING_ON_TRUST,
    AptRoot,
    fetch,
    find_mirror,
    lock_source,
    unpack,
)
from jetship.toolchain.lock import Locked

COMPONENTS = ("main", "contrib")


def source(**rows) -> DebianSource:
    words = {"suite": "bookworm", "components": COMPONENTS, "architecture": "arm64"}
    return DebianSource(**(words | rows))


def apt_source(key, *, uri: str = "file:///srv/acme") -> AptSource:
    acme = Repository(name="acme", uri=uri, suites=("./",), signed_by=key)
    both = (Repository(suites=("bookworm",)), acme)
    return AptSource(architecture="arm64", repositories=both, install=("libfoo",))


SOURCE = source()
OK = proc.Finished((), 0)
MIRROR = "http://mirror.invalid/debian"

# As apt writes them, with the mirror's name replaced.
NO_NETWORK = """\
W: Some index files failed to download. They have been ignored, or old ones used instead.
E: Failed to fetch http://mirror.invalid/debian/dists/bookworm/InRelease  Temporary failure resolving 'mirror.invalid'
E: Some index files failed to download. They have been ignored, or old ones used instead.
"""  # noqa: E501
VERSION_GONE = "E: Version '2.36-9+deb12u1' for 'libc6' was not found\n"
NO_PACKAGE = "E: Unable to locate package libfoo\n"
HASH_MISMATCH = """\
E: Failed to fetch http://mirror.invalid/debian/pool/main/g/glibc/libc6_2.36-9_arm64.deb  Hash Sum mismatch
   Hashes of expected file:
    - SHA256:aaaa
E: Failed to fetch some archives.
"""  # noqa: E501
DISK_FULL = """\
E: Failed to fetch http://mirror.invalid/debian/pool/x.deb  Error writing to file - write (28: No space left on device)
E: Failed to fetch some archives.
"""  # noqa: E501
NOT_SIGNED = """\
W: GPG error: http://mirror.invalid/debian bookworm InRelease: The following signatures couldn't be verified because the public key is not available: NO_PUBKEY 0E98404D386FA1D9
E: The repository 'http://mirror.invalid/debian bookworm InRelease' is not signed.
"""  # noqa: E501
NO_COMPONENT = """\
W: Skipping acquire of configured file 'contrb/binary-arm64/Packages' as repository 'http://mirror.invalid/debian bookworm InRelease' doesn't have the component 'contrb' (component misspelt in sources.list?)
"""  # noqa: E501
SIMULATED = """\
NOTE: This is only a simulation!
Reading package lists...
The following NEW packages will be installed:
  gcc-12-base libc6 libfoo
Inst gcc-12-base (12.2.0-14 Debian:12.5/stable [arm64])
Inst libc6 (2.36-9+deb12u4 Debian:12.5/stable [arm64])
Inst libgmp10 (2:6.2.1+dfsg1-1.1 Debian:12.5/stable [arm64]) []
Inst libfoo (1.1 Debian:12.5/stable [arm64])
Conf libc6 (2.36-9+deb12u4 Debian:12.5/stable [arm64])
"""


@pytest.fixture
def public_key(tmp_path):
    """A file that begins as a public key does."""
    path = tmp_path / "acme.gpg"
    path.write_bytes(b"\x99\x01\x0d\x04rest")
    return path


@pytest.fixture
def mirror(monkeypatch):
    monkeypatch.setenv("JETSHIP_DEBIAN_MIRROR", f"{MIRROR}/")


@pytest.fixture
def apt(store, mirror) -> AptRoot:
    return AptRoot(store, SOURCE)


def locked(path) -> Locked:
    name, version, _ = path.stem.split("_")
    data = path.read_bytes()
    return Locked(name=name, version=version.replace("%3a", ":"), file=path.name,
                  sha256=hashlib.sha256(data).hexdigest(), size=len(data))  # fmt: skip


def test_the_users_own_mirror_wins(mirror, programs):
    fake = programs(status=100)
    assert find_mirror() == MIRROR
    assert fake.calls == []


def test_the_mirror_is_the_debian_archive_that_apt_uses(programs, on_path):
    on_path(there=True)
    listed = (
        "http://other.invalid/security\nhttp://near.invalid/debian/\nhttp://far.invalid/debian\n"
    )
    programs(stdout=listed)
    assert find_mirror() == "http://near.invalid/debian"


def test_a_machine_without_a_debian_archive_is_told_how_to_name_one(programs, on_path):
    on_path(there=True)
    programs(stdout="http://x.invalid/ubuntu\n")
    with pytest.raises(ConfigError, match="no Debian archive") as caught:
        find_mirror()
    assert "JETSHIP_DEBIAN_MIRROR" in caught.value.fix


def test_a_machine_without_apt_is_told_so(on_path):
    on_path(there=False)
    with pytest.raises(ToolMissingError, match="`apt-get` is not installed") as caught:
        find_mirror()
    assert caught.value.fix


def test_apt_works_in_a_root_of_its_own(apt, programs, store):
    fake = programs()
    apt.update()
    assert fake.calls == [["apt-get", "update", "--error-on=any", *NOTHING_ON_TRUST]]
    env = fake.options[0]["env"]
    root = store.root / "apt/bookworm-main-contrib-arm64"
    assert env["APT_CONFIG"] == str(root / "apt.conf")
    assert env["LC_ALL"] == "C.UTF-8"
    config = (root / "apt.conf").read_text()
    assert f'Dir::State "{root}";' in config
    assert 'APT::Architecture "arm64";' in config
    assert (
        (root / "sources/jetship.sources")
        .read_text()
        .startswith(f"Types: deb\nURIs: {MIRROR}\nSuites: bookworm\nComponents: main contrib\n")
    )
    assert (root / "lists/partial").is_dir()


@pytest.mark.parametrize("there", [True, False])
def test_the_archives_signature_is_checked_with_debians_keyring(  # noqa: PLR0917
    apt, programs, store, tmp_path, monkeypatch, there
):
    keyring = tmp_path / "keyring.gpg"
    if there:
        keyring.touch()
    monkeypatch.setattr(debian, "KEYRING", keyring)
    programs()
    apt.update()
    listed = store.root / "apt/bookworm-main-contrib-arm64/sources/jetship.sources"
    assert (f"Signed-By: {keyring}\n" in listed.read_text()) == there
    assert "Trusted" not in listed.read_text()


def test_package_lists_are_read_once_a_day_and_for_every_mirror(apt, programs, store, monkeypatch):
    fake = programs()
    apt.update()
    apt.update()
    assert len(fake.calls) == 1
    monkeypatch.setenv("JETSHIP_DEBIAN_MIRROR", "http://other.invalid/debian")
    apt.update()
    assert len(fake.calls) == 2
    stamp = store.root / "apt/bookworm-main-contrib-arm64/updated"
    old = time.time() - 25 * 3600
    os.utime(stamp, (old, old))
    apt.update()
    assert len(fake.calls) == 3
    apt.update(max_age_seconds=0)
    assert len(fake.calls) == 4


def test_an_archive_that_cannot_be_read_is_told_in_apts_words(apt, programs, store):
    programs(status=100, stderr=NO_NETWORK)
    with pytest.raises(DownloadError, match="package lists of Debian bookworm") as caught:
        apt.update()
    assert caught.value.why == "; ".join(
        line.removeprefix("E: ") for line in NO_NETWORK.splitlines() if line.startswith("E:")
    )
    assert "network" in caught.value.fix
    assert not (store.root / "apt/bookworm-main-contrib-arm64/updated").exists()


def test_a_mirror_that_debian_has_not_signed_is_told(apt, programs):
    programs(status=100, stderr=NOT_SIGNED)
    with pytest.raises(DownloadError) as caught:
        apt.update()
    assert caught.value.why == (
        f"{MIRROR} bookworm is signed with the key 0E98404D386FA1D9, which is not in "
        "Debian's archive keyring"
    )
    assert "apt-get install debian-archive-keyring" in caught.value.fix


def test_a_component_that_apt_only_warns_of_is_an_error(apt, programs, store):
    programs(stderr=NO_COMPONENT)
    with pytest.raises(DownloadError) as caught:
        apt.update()
    assert caught.value.why == f"{MIRROR} bookworm has no component contrb"
    assert not (store.root / "apt/bookworm-main-contrib-arm64/updated").exists()


def test_a_source_is_all_that_apt_would_install_but_what_it_drops(store, mirror, programs):
    fake = programs(stdout=SIMULATED)
    asked = source(install=("libfoo",), alone=("nvidia-cuda-toolkit",), drop=("gcc-*-base",))
    assert AptRoot(store, asked).resolve() == [
        "libc6=2.36-9+deb12u4", "libfoo=1.1", "libgmp10=2:6.2.1+dfsg1-1.1", "nvidia-cuda-toolkit"
    ]  # fmt: skip
    assert fake.calls == [
        ["apt-get", "install", "--simulate", "--yes", "libfoo", *NOTHING_ON_TRUST]
    ]


def test_a_source_without_dependencies_asks_apt_nothing(store, mirror, programs):
    fake = programs(status=100)
    asked = source(architecture="amd64", alone=("b", "a"))
    assert AptRoot(store, asked).resolve() == ["a", "b"]
    assert fake.calls == []


def test_what_is_dropped_is_dropped_however_it_was_named(store, mirror, programs):
    programs(stdout=SIMULATED)
    asked = source(install=("libfoo",), alone=("tool", "tool-doc"), drop=("lib*", "*-doc"))
    assert AptRoot(store, asked).resolve() == ["gcc-12-base=12.2.0-14", "tool"]


def test_each_suite_components_and_architecture_have_a_root_of_their_own(store):
    others = [source(suite="trixie"), source(components=("main",)), source(architecture="amd64")]
    assert len({AptRoot(store, one).name for one in (SOURCE, *others)}) == 4


def test_repositories_are_resolved_together_each_with_its_key(store, mirror, programs, public_key):
    fake = programs(stdout=SIMULATED)
    asked = apt_source(public_key)
    root = AptRoot(store, asked)
    root.update()
    text = (store.root / f"apt/{root.name}/sources/jetship.sources").read_text()
    debian_stanza, acme = text.split("\n\n")
    assert f"URIs: {MIRROR}\nSuites: bookworm\n" in debian_stanza
    assert "URIs: copy:/srv/acme\nSuites: ./\nSigned-By:\n -----BEGIN PGP" in acme
    assert "Components" not in acme
    assert len(root.resolve()) == 4
    assert len([call for call in fake.calls if call[1] == "install"]) == 1


def test_other_repositories_have_a_root_of_their_own(store, public_key):
    one = apt_source(public_key)
    other = apt_source(public_key, uri="https://repo.example/acme")
    assert len({AptRoot(store, each).name for each in (SOURCE, one, other)}) == 3


def test_lists_are_read_again_when_the_key_is_another(store, mirror, programs, public_key):
    fake = programs()
    root = AptRoot(store, apt_source(public_key))
    assert root.update()
    assert not root.update()
    public_key.write_bytes(public_key.read_bytes() + b"more")
    assert root.update()
    assert len(fake.calls) == 2


def test_a_key_that_is_gone_since_is_told(store, mirror, programs, public_key):
    root = AptRoot(store, apt_source(public_key))
    public_key.unlink()
    with pytest.raises(ConfigError, match=r"acme\.gpg cannot be read"):
        root.update()


def test_lists_are_read_again_before_a_package_is_given_up(store, mirror, archive):
    packages, fake = archive
    one, two = (locked(path) for path in packages)
    fetch(store, SOURCE, [one])
    answer, failed = fake.answer, []

    def fail_once(argv, options):
        if argv[1] == "download" and not failed:
            failed.append(argv)
            return proc.Finished(tuple(argv), 100, "", VERSION_GONE)
        return answer(argv, options)

    fake.answer = fail_once
    fetch(store, SOURCE, [two])
    assert [call[1] for call in fake.calls[-4:]] == [
        "download", "indextargets", "update", "download"
    ]  # fmt: skip


def test_a_suite_without_packages_of_the_architecture_is_named(store, mirror, programs, public_key):
    def answer(argv, _options):
        if argv[1] == "indextargets":
            return proc.Finished((), 0, f"{MIRROR}/ bookworm\n")
        return proc.Finished((), 100, "", NO_PACKAGE)

    programs(answer)
    with pytest.raises(DownloadError) as caught:
        AptRoot(store, apt_source(public_key)).resolve()
    assert caught.value.why.endswith(
        "read were Debian bookworm; acme ./; acme ./ has no packages for arm64"
    )


def test_a_package_that_the_suite_lacks_is_named(store, mirror, programs):
    programs(status=100, stderr=NO_PACKAGE)
    with pytest.raises(DownloadError, match="no way to install libfoo") as caught:
        AptRoot(store, source(install=("libfoo",))).resolve()
    assert "Unable to locate package libfoo" in caught.value.why


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (NO_NETWORK, ("Temporary failure resolving 'mirror.invalid'", "check the network")),
        (VERSION_GONE, ("the archive no longer carries the locked version", "invoke pins --part")),
        (HASH_MISMATCH, ("Hash Sum mismatch", "check the network")),
        (DISK_FULL, ("the disk is full", "JETSHIP_CACHE")),
        ("words without a letter before them\n", ("words without a letter", "check the network")),
    ],
)
def test_a_download_that_fails_says_why_and_what_to_do(apt, programs, tmp_path, said, told):
    programs(status=100, stderr=said)
    with pytest.raises(DownloadError, match="could not download Debian packages") as caught:
        apt.download(["libc6=2.36-9+deb12u1"], tmp_path)
    assert told[0] in caught.value.why
    assert told[1] in caught.value.fix


@pytest.fixture
def archive(make_deb, programs):
    """An archive with two packages, whose apt copies what it is asked for."""
    packages = [
        make_deb("libone", {"usr/lib/one": "1"}, version="2:1.0"),
        make_deb("libtwo", {"usr/lib/two": "2"}),
    ]
    by_spec = {f"{locked(path).name}={locked(path).version}": path for path in packages}

    def answer(argv, options):
        if argv[:2] == ["apt-get", "download"]:
            for spec in argv[2 : -len(NOTHING_ON_TRUST)]:
                target = options["cwd"] / by_spec[spec].name
                target.write_bytes(by_spec[spec].read_bytes())
        return OK

    return packages, programs(answer)


def test_packages_are_downloaded_by_version_and_kept_by_digest(store, mirror, archive):
    packages, fake = archive
    files = [locked(path) for path in packages]
    paths = fetch(store, SOURCE, files)
    assert [path.read_bytes() for path in paths] == [path.read_bytes() for path in packages]
    assert paths[0] == store.blob(files[0].sha256, "libone_2%3a1.0_arm64.deb")
    assert fake.calls[-1] == [
        "apt-get", "download", "libone=2:1.0", "libtwo=1.0", *NOTHING_ON_TRUST
    ]  # fmt: skip


def test_what_is_in_the_cache_is_not_downloaded_again(store, mirror, archive):
    packages, fake = archive
    one, two = (locked(path) for path in packages)
    fetch(store, SOURCE, [one])
    fetch(store, SOURCE, [one, two])
    assert fake.calls[-1] == ["apt-get", "download", "libtwo=1.0", *NOTHING_ON_TRUST]
    done = len(fake.calls)
    fetch(store, SOURCE, [one, two])
    assert len(fake.calls) == done


def test_a_package_with_another_digest_does_not_enter_the_cache(store, mirror, archive):
    packages, _ = archive
    wrong = locked(packages[0]).model_copy(update={"sha256": "0" * 64})
    with pytest.raises(DownloadError, match="another digest than the lock file"):
        fetch(store, SOURCE, [wrong])
    assert list(store.root.rglob("*.deb")) == []


def test_a_lock_holds_what_apt_downloaded(store, mirror, make_deb, monkeypatch, tmp_path):
    keyring = tmp_path / "keyring.gpg"
    keyring.touch()
    monkeypatch.setattr(debian, "KEYRING", keyring)
    package = make_deb("libone", {"usr/lib/one": "1"}, version="2:1.0")
    real = proc.run

    def run(argv, **options):
        if argv[0] == "dpkg-deb":
            return real(argv, **options)
        if argv[1] == "download":
            assert argv[2:] == ["libone", *NOTHING_ON_TRUST]
            (options["cwd"] / package.name).write_bytes(package.read_bytes())
        return OK

    monkeypatch.setattr(proc, "run", run)
    expected = locked(package)
    assert lock_source(store, source(alone=("libone",))) == (expected,)
    assert store.blob(expected.sha256, expected.file).is_file()


def test_nothing_is_locked_without_debians_keyring(store, mirror, programs, tmp_path, monkeypatch):
    monkeypatch.setattr(debian, "KEYRING", tmp_path / "none.gpg")
    fake = programs(status=100)
    with pytest.raises(ToolMissingError, match="signature cannot be checked") as caught:
        lock_source(store, source(alone=("libone",)))
    assert "debian-archive-keyring" in caught.value.fix
    assert fake.calls == []


def test_packages_become_one_merged_usr_tree(make_deb, link, tmp_path):
    one = make_deb("one", {
        "bin/sh": "#!/bin/sh\n",
        "lib/aarch64-linux-gnu/libc.so.6": "libc",
        "lib/aarch64-linux-gnu/libm.so.6": link("libm-2.36.so"),
        "lib/ld-linux.so.1": link("aarch64-linux-gnu/ld.so"),
    })  # fmt: skip
    two = make_deb("two", {
        "usr/lib/aarch64-linux-gnu/libc.so": link("/lib/aarch64-linux-gnu/libc.so.6"),
        "usr/lib/aarch64-linux-gnu/libother.so": "other",
        "usr/bin/tool": link("/etc/alternatives/tool"),
        "usr/share/doc": link("/usr/lib"),
        "sbin/init": "#!/bin/sh\n",
    })  # fmt: skip
    root = tmp_path / "root"
    unpack([one, two], root)
    assert {name: (root / name).readlink().as_posix() for name in ("bin", "lib", "sbin")} == {
        "bin": "usr/bin", "lib": "usr/lib", "sbin": "usr/sbin"
    }  # fmt: skip
    libraries = root / "usr/lib/aarch64-linux-gnu"
    assert sorted(path.name for path in libraries.iterdir()) == [
        "libc.so", "libc.so.6", "libm.so.6", "libother.so"
    ]  # fmt: skip
    assert (libraries / "libc.so").read_text() == "libc"
    assert (libraries / "libm.so.6").readlink().as_posix() == "libm-2.36.so"
    assert os.access(root / "bin/sh", os.X_OK)
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert not any(path.readlink().is_absolute() for path in links)
    assert (root / "usr/bin/tool").readlink().as_posix() == "../../etc/alternatives/tool"
    moved = tmp_path / "moved"
    root.rename(moved)
    assert (moved / "usr/lib/aarch64-linux-gnu/libc.so").read_text() == "libc"
    assert (moved / "usr/share/doc/aarch64-linux-gnu/libother.so").read_text() == "other"


def test_a_tree_that_is_merged_already_stays_so(make_deb, link, tmp_path):
    base = make_deb("base", {"usr/lib/x": "x", "lib": link("usr/lib")})
    unpack([base], tmp_path / "root")
    assert (tmp_path / "root/lib/x").read_text() == "x"
    assert not (tmp_path / "root/bin").exists()


def test_no_script_of_a_package_is_run(make_deb, tmp_path):
    ran = tmp_path / "ran"
    scripts = {f"DEBIAN/{name}": f"#!/bin/sh\ntouch {ran}\n" for name in ("preinst", "postinst")}
    unpack([make_deb("evil", {"usr/x": "x", **scripts})], tmp_path / "root")
    assert not ran.exists()
    assert not (tmp_path / "root/DEBIAN").exists()


def test_a_damaged_package_is_named(tmp_path):
    path = tmp_path / "broken_1_arm64.deb"
    path.write_text("not a package")
    with pytest.raises(DownloadError, match=r"broken_1_arm64\.deb cannot be unpacked") as caught:
        unpack([path], tmp_path / "root")
    assert "dpkg-deb" in caught.value.why
    assert "network" not in caught.value.fix
    assert caught.value.fix


def test_a_disk_that_fills_while_unpacking_is_told(tmp_path, programs):
    programs(status=100, stderr="dpkg-deb: error: failed to write: No space left on device\n")
    with pytest.raises(DownloadError) as caught:
        unpack([tmp_path / "x.deb"], tmp_path / "root")
    assert caught.value.why == "the disk is full"
    assert "JETSHIP_CACHE" in caught.value.fix


def test_a_machine_without_dpkg_is_told_so(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="dpkg-deb"):
        unpack([tmp_path / "x.deb"], tmp_path / "root")
