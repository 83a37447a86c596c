"""The RECORD of a wheel: each file with its digest and size."""

import base64
import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of a RECORD: a path below the folder of packages, its digest and size."""

    path: str
    digest: str
    size: str

    def problems(self, digest: str, size: int) -> Iterator[str]:
        """Say how a file of this digest (as `recorded` writes it) and size differs from the row."""
        if not self.digest.startswith("sha256="):
            yield f"{self.path} has no sha256 in RECORD"
        elif self.digest != digest or (self.size and self.size != str(size)):
            yield f"{self.path} is not what RECORD says: {digest}, recorded {self.digest}"


def record_rows(data: bytes) -> tuple[list[Row], list[str]]:
    """Return the lines of a RECORD file, each path once, and what is wrong with it."""
    found: dict[str, Row] = {}
    problems = []
    try:
        for row in csv.reader(io.StringIO(data.decode("utf-8"))):
            if len(row) != 3 or row[0] in found:
                problems.append(f"RECORD has a damaged or repeated row: {','.join(row)}")
            else:
                found[row[0]] = Row(*row)
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(f"RECORD cannot be read: {error}")
    return [*found.values()], problems


def recorded(sha256: bytes) -> str:
    """Return a SHA-256 digest as RECORD writes it: in URL-safe base64, without padding.

    Source: packaging.python.org, recording installed projects.
    """
    return "sha256=" + base64.urlsafe_b64encode(sha256).decode().rstrip("=")
