"""What apt's messages mean, of which the integration tests do not bring all about."""

import pytest
from jetship import proc
from jetship.targets.repositories import Repository
from jetship.toolchain.aptwords import as_error

BAD_TIME = (
    "E: Release file for https://repo.example/x/dists/s/InRelease is {} of this repository will "
    "not be applied.\n"
)
NOT_SIGNED = "E: The repository 'https://repo.example/x s InRelease' is not signed.\n"


@pytest.fixture
def repositories(tmp_path):
    key = tmp_path / "x.gpg"
    key.write_bytes(b"\x99\x01\x0d\x04rest")
    x = Repository(name="x", uri="https://repo.example/x/", suites=("s",), signed_by=key)
    return (Repository(suites=("bookworm",)), x)


@pytest.mark.parametrize(
    ("said", "why", "fix"),
    [
        (
            (
                "W: GPG error: https://repo.example/x s InRelease: The following signatures were "
                f"invalid: EXPKEYSIG 0E98404D386FA1D9 X <x@example.invalid>\n{NOT_SIGNED}"
            ),
            "https://repo.example/x s is signed with the key 0E98404D386FA1D9, which has expired",
            "put it into KEY",
        ),
        (
            (
                "W: GPG error: https://repo.example/x s InRelease: The following signatures were "
                f"invalid: ERRSIG 0E98404D386FA1D9\n{NOT_SIGNED}"
            ),
            "the signature of https://repo.example/x s cannot be verified: The following",
            "compare the key in KEY",
        ),
        (
            (
                "W: OpenPGP signature verification failed: https://repo.example/x s InRelease: "
                f"Sub-process /usr/bin/sqv returned an error code (1)\n{NOT_SIGNED}"
            ),
            "the signature of https://repo.example/x s cannot be verified: Sub-process",
            "compare the key in KEY",
        ),
        (
            BAD_TIME.format("expired (invalid since 2d 3h). Updates"),
            "is expired (invalid since 2d 3h)",
            "a mirror that is kept up to date",
        ),
        (
            BAD_TIME.format("not valid yet (invalid for another 3h). Updates"),
            "is not valid yet",
            "this machine's clock",
        ),
        (
            "E: Package 'libfoo' has no installation candidate\n",
            "Package 'libfoo' has no installation candidate; read were Debian bookworm; x s",
            "compare the names",
        ),
    ],
)
def test_a_message_is_told_with_its_cause_and_what_to_do(repositories, said, why, fix):
    error = as_error("it failed", proc.Finished((), 100, "", said), repositories)
    assert error.what == "it failed"
    assert why in error.why
    assert fix.replace("KEY", str(repositories[1].signed_by)) in error.fix


def test_braces_in_what_apt_says_are_text(repositories):
    said = "E: Unable to locate package {x}\n"
    error = as_error("it failed", proc.Finished((), 100, "", said), repositories)
    assert "Unable to locate package {x}" in error.why
