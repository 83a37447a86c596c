"""Wheels that the tests of the check write, whole or bent."""

import base64
import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

TAG = "cp311-cp311-linux_aarch64"
EXT = ".cpython-311-aarch64-linux-gnu.so"


@dataclass(frozen=True)
class WheelSpec:
    """A wheel to write; each field can be bent to make one rule fail."""

    members: dict[str, bytes] = field(default_factory=dict)
    name: str = "pkg"
    version: str = "1.0"
    tag: str = TAG
    metadata_version: str = "1.0"
    wheel_tag: str | None = None
    headers: tuple[str, ...] = ("Requires-Dist: torch==2.7.1",)
    extra: dict[str, bytes] = field(default_factory=dict)  # into .dist-info
    edited: dict[str, bytes] = field(default_factory=dict)  # written instead, after RECORD
    unrecorded: dict[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        info = f"{self.name}-{self.version}.dist-info"
        metadata = ["Metadata-Version: 2.1", f"Name: {self.name}"]
        metadata += [f"Version: {self.metadata_version}", *self.headers]
        tag = self.wheel_tag or self.tag
        files = dict(self.members)
        files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
        files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {tag}\n".encode()
        files |= {f"{info}/{name}": data for name, data in self.extra.items()}
        record = "".join(_row(name, data) for name, data in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        path = folder / f"{self.name}-{self.version}-{self.tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (files | self.edited | self.unrecorded).items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return path


def _row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"
