"""Digests as the RECORD of a wheel has them."""

import base64


def recorded(sha256: bytes) -> str:
    """Return a SHA-256 digest as RECORD writes it: in URL-safe base64, without padding.

    Source: packaging.python.org, recording installed projects.
    """
    return "sha256=" + base64.urlsafe_b64encode(sha256).decode().rstrip("=")
