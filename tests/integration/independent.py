"""Facts of a wheel, read with other people's tools: nothing of jetship looks at it here."""

import base64
import csv
import email
import hashlib
import io
import json
import re
import zipfile
from dataclasses import dataclass
from email.message import Message
from functools import cached_property
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from jetship import proc


@dataclass(frozen=True)
class Opened:
    """A wheel, unpacked by zipfile."""

    path: Path

    @cached_property
    def files(self) -> dict[str, bytes]:
        with zipfile.ZipFile(self.path) as archive:
            assert archive.testzip() is None
            return {name: archive.read(name) for name in archive.namelist()}

    @property
    def metadata(self) -> Message:
        return email.message_from_bytes(self._of_dist_info("METADATA"))

    @property
    def required(self) -> list[str]:
        """What an installer always brings along, without the extras that a user may ask for."""
        lines = self.metadata.get_all("Requires-Dist", [])
        return [line for line in lines if not re.search(r";\s*extra\s*==", line)]

    @property
    def pin(self) -> Any:
        return json.loads(self._of_dist_info("jetship.json"))

    @property
    def record(self) -> dict[str, tuple[str, str]]:
        rows = csv.reader(io.StringIO(self._of_dist_info("RECORD").decode()))
        return {name: (digest, size) for name, digest, size in rows}

    def _of_dist_info(self, name: str) -> bytes:
        (found,) = [file for file in self.files if file.endswith(f".dist-info/{name}")]
        return self.files[found]

    @property
    def library(self) -> bytes:
        (found,) = [data for name, data in self.files.items() if name.endswith(".so")]
        return found


def record_of(files: dict[str, bytes]) -> dict[str, tuple[str, str]]:
    """Return what RECORD has to say about all files but itself."""
    return {
        name: (
            "sha256="
            + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="),
            str(len(data)),
        )
        for name, data in files.items()
        if not name.endswith(".dist-info/RECORD")
    }


def elf(library: bytes) -> ELFFile:
    """Open a library with pyelftools."""
    return ELFFile(io.BytesIO(library))


def needed_versions(library: bytes) -> set[str]:
    """Return the symbol versions that a library asks for: GLIBC_2.17, ..."""
    return {
        auxiliary.name
        for section in elf(library).iter_sections()
        if isinstance(section, GNUVerNeedSection)
        for _, auxiliaries in section.iter_versions()
        for auxiliary in auxiliaries
    }


def needed_libraries(library: bytes) -> list[str]:
    """Return the sonames that a library needs."""
    dynamic = elf(library).get_section_by_name(".dynamic")
    return [tag.needed for tag in dynamic.iter_tags("DT_NEEDED")]


def device_code(cuobjdump: Path, library: Path) -> tuple[set[str], set[str]]:
    """Return the archs of a library's machine code and of its PTX, as cuobjdump lists them."""
    lists = []
    for option in ("--list-elf", "--list-ptx"):
        done = proc.run([cuobjdump, option, library])
        lists.append(set(re.findall(r"\.sm_(\d+)\.", done.stdout)))
    return lists[0], lists[1]
