"""apt repositories: what apt is told of them, and the keys that they are signed with."""

import base64

import pytest
from jetship.targets.repositories import Repository, key_field, read_key

KEY = b"\x99\x01\x0d\x04" + bytes(range(200))
NEW_FORMAT = b"\xc6\x33\x04" + bytes(50)


def armoured(data: bytes, *, what: str = "PUBLIC KEY BLOCK", headers: str = "") -> bytes:
    text = base64.encodebytes(data).decode()
    return (
        f"-----BEGIN PGP {what}-----\n{headers}\n{text}=AbCd\n-----END PGP {what}-----\n".encode()
    )


@pytest.fixture
def write(tmp_path):
    def write(data: bytes):
        path = tmp_path / "some.key"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("data", "keyring"),
    [
        (KEY, KEY),
        (NEW_FORMAT, NEW_FORMAT),
        (armoured(KEY), KEY),
        (armoured(KEY).replace(b"\n", b"\r\n"), KEY),
        (armoured(KEY, headers="Version: GnuPG v1\nComment: a key\n"), KEY),
        (b"the key of acme:\n" + armoured(KEY) + b"\n" + armoured(NEW_FORMAT), KEY + NEW_FORMAT),
    ],
)
def test_keys_are_read_armoured_or_not(write, data, keyring):
    assert read_key(write(data)) == keyring


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not an OpenPGP public key"),
        (b"<html>404</html>", "is not an OpenPGP public key; it may be a page"),
        (b"\x95\x01\x0d\x04", "is a private key"),
        (armoured(b"\x95\x01\x0d\x04", what="PRIVATE KEY BLOCK"), "is a private key"),
        (b"\0\0\0\x20\x01\x01\0\0KBXf", "is a keybox"),
        (armoured(KEY).replace(b"mQEN", b"mQ!N"), "is damaged"),
        (armoured(b"\xc2\x01\x0d\x04", what="SIGNATURE"), "is not an OpenPGP public key"),
    ],
)
def test_what_is_no_public_key_is_refused(write, data, said):
    with pytest.raises(ValueError, match=said):
        read_key(write(data))


def test_a_folder_is_no_key(tmp_path):
    with pytest.raises(ValueError, match="cannot be read"):
        read_key(tmp_path)


def test_apt_is_given_the_keys_themselves(write):
    lines = key_field(write(armoured(KEY))).split("\n")
    assert lines[:3] == ["", " -----BEGIN PGP PUBLIC KEY BLOCK-----", " ."]
    assert lines[-1] == " -----END PGP PUBLIC KEY BLOCK-----"
    assert base64.b64decode("".join(lines[3:-1])) == KEY
    assert all(line.startswith(" ") for line in lines[1:])


@pytest.mark.parametrize(
    ("suite", "label"),
    [("jammy", "x-jammy"), ("./", "x"), ("/", "x"), ("pool/arm64/", "x-pool-arm64")],
)
def test_a_suite_has_a_name_in_the_lock_file(write, suite, label):
    rows = {"name": "x", "uri": "https://repo.example/x", "signed_by": write(KEY)}
    assert Repository(**rows, suites=(suite,)).labels == (label,)


def test_a_repository_is_described_to_apt_in_its_own_words(write):
    rows = {"name": "x", "uri": "https://repo.example/x/", "signed_by": write(KEY)}
    one = Repository(**rows, suites=("jammy", "jammy-updates"), components=("main", "universe"))
    assert one.stanza(one.address, " /key") == (
        "Types: deb\nURIs: https://repo.example/x\nSuites: jammy jammy-updates\n"
        "Components: main universe\nSigned-By: /key\n"
    )


@pytest.mark.parametrize("uri", ["file:/srv/x", "file:///srv/x", "file:///srv/x/"])
def test_files_are_copied_under_the_names_that_downloads_have(write, uri):
    one = Repository(name="x", uri=uri, suites=("x",), signed_by=write(KEY))
    assert one.address == "copy:/srv/x"
