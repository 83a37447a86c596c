"""Send the tables of a device's libraries to stdout, as a zip archive. Runs on the device.

jetship sends this program over SSH to the device's own python3, which has to be there anyway where
torch is. Of each library only the headers and dynamic tables are sent, at the places where they lie
in the file, so that jetship's one reader of ELF files reads them: some megabytes where the files
are gigabytes. Nothing is written on the device. Python 3.6 and later, its standard library alone.
"""

import glob
import importlib.util
import json
import os
import platform
import re
import struct
import subprocess  # noqa: TID251 - jetship.proc is not on the device
import sys
import sysconfig
import zipfile
from typing import Any, Dict, Iterator, List, Optional, Tuple

FORMAT = 1
NO_TORCH = 3  # exit status
WHOLE_BYTES = 1 << 26  # a library without section headers is sent whole, up to this size
# Types of sections: hash, dynamic, dynsym, GNU's hash and versions (elf.h).
KEPT = (5, 6, 11, 0x6FFFFFF6, 0x6FFFFFFD, 0x6FFFFFFE, 0x6FFFFFFF)


def main() -> None:
    """Write the archive; its last member is the index, so that an archive cut off is none."""
    torch = torch_folder()
    if torch is None:
        sys.stderr.write("no torch for %s\n" % sys.executable)
        sys.exit(NO_TORCH)
    index: Dict[str, Any] = {"format": FORMAT, "facts": facts(torch), "files": [], "left_out": []}
    with zipfile.ZipFile(sys.stdout.buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in libraries(torch):
            try:
                size, ranges, content = skeleton(path)
            except (OSError, ValueError, struct.error) as error:
                index["left_out"].append([path, str(error)])
                continue
            member = "files/%d" % len(index["files"])
            archive.writestr(member, content)
            row = {"name": name, "path": path, "size": size, "ranges": ranges, "member": member}
            index["files"].append(row)
        archive.writestr("index.json", json.dumps(index))


def torch_folder() -> Optional[str]:
    """Return where this Python's torch is, without importing it."""
    spec = importlib.util.find_spec("torch")
    places = list(spec.submodule_search_locations or []) if spec else []
    return places[0] if places and os.path.isdir(places[0] + "/lib") else None


def facts(torch: str) -> Dict[str, Any]:
    """Return what the device says of itself."""
    version = re.search(
        r"^__version__\b.*=\s*['\"]([^'\"]+)", text(torch + "/version.py"), re.MULTILINE
    )
    return {
        "host": platform.node(),
        "model": text("/proc/device-tree/model").strip("\0\n"),
        "machine": platform.machine(),
        "python": "%d.%d" % sys.version_info[:2],
        "python_path": sys.executable,
        "soabi": sysconfig.get_config_var("SOABI"),
        "torch": version.group(1) if version else "",
        "torch_path": torch,
        "l4t": text("/etc/nv_tegra_release").partition("\n")[0],
        "packages": packages(),
    }


def packages() -> Dict[str, str]:
    """Return versions of the Debian packages that say what the system is."""
    names = ["libc6", "libstdc++6", "nvidia-l4t-core", "nvidia-jetpack"]
    words = ["dpkg-query", "-W", "-f", "${Package} ${Version}\\n", *names]
    rows = (line.split() for line in output(words).splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 2}


def libraries(torch: str) -> Iterator[Tuple[str, str]]:
    """Yield name and path of each library, those that the loader finds first at the beginning."""
    seen = set()
    for path in candidates(torch):
        real = os.path.realpath(path)
        if real not in seen and os.path.isfile(real):
            seen.add(real)
            yield os.path.basename(path), real
    # Extension modules take Python's symbols from the running program.
    yield "python%d.%d" % sys.version_info[:2], os.path.realpath(sys.executable)


def candidates(torch: str) -> Iterator[str]:
    """Yield paths that may be libraries."""
    for line in output(["/sbin/ldconfig", "-p"]).splitlines():
        name, arrow, path = line.partition(" => ")
        if arrow:
            yield path.strip()
    triplet = sysconfig.get_config_var("MULTIARCH") or platform.machine() + "-linux-gnu"
    system = ["/lib/" + triplet, "/usr/lib/" + triplet, "/usr/lib/" + triplet + "/tegra"]
    system += ["/lib", "/usr/lib", "/usr/local/lib"]
    packages_folder = os.path.dirname(torch)
    own = [torch + "/lib", *sorted(glob.glob(glob.escape(packages_folder) + "/*.libs"))]
    own += sorted(glob.glob(glob.escape(packages_folder) + "/nvidia/*/lib"))
    cuda = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/aarch64-linux/lib"]
    cuda += sorted(glob.glob("/usr/local/cuda-*/targets/*/lib"))
    for folder in system + own + cuda:
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            if ".so" in name:
                yield os.path.join(folder, name)


def skeleton(path: str) -> Tuple[int, List[Tuple[int, int]], bytes]:
    """Return a library's size, the ranges (offset, bytes) that are kept, and their content."""
    with open(path, "rb") as stream:
        head = stream.read(64)
        if head[:6] != b"\x7fELF\x02\x01" or len(head) < 64:
            raise ValueError("not a 64-bit little-endian ELF file")
        size = os.fstat(stream.fileno()).st_size
        programs, sections = struct.unpack_from("<QQ", head, 32)
        program_size, program_count, section_size, count, names = struct.unpack_from(
            "<HHHHH", head, 54
        )
        ranges = [(0, 64), (programs, program_size * program_count)]
        stream.seek(sections)
        table = stream.read(section_size * count) if sections and section_size == 64 else b""
        rows = list(struct.iter_unpack("<IIQQQQIIQQ", table[: len(table) // 64 * 64]))
        kept = {number for number, row in enumerate(rows) if row[1] in KEPT}
        if any(rows[number][1] == 11 for number in kept):
            # The strings of a table are in the section that it is linked to.
            kept |= {rows[number][6] for number in kept if rows[number][1] != 5} | {names}
            ranges.append((sections, len(table)))
            ranges += [
                (rows[number][4], rows[number][5]) for number in sorted(kept) if number < len(rows)
            ]
        elif size <= WHOLE_BYTES:
            ranges = [(0, size)]
        else:
            raise ValueError("it has no section headers and is too large to be sent whole")
        ranges = [one for one in ranges if one[1] and one[0] + one[1] <= size]
        pieces = []
        for offset, length in ranges:
            stream.seek(offset)
            pieces.append(stream.read(length))
        return size, ranges, b"".join(pieces)


def output(words: List[str]) -> str:
    """Return what a program writes, or "" where it is not there or fails."""
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


def text(path: str) -> str:
    """Return a file's content, or "" where it cannot be read."""
    try:
        with open(path, errors="replace") as stream:
            return stream.read()
    except OSError:
        return ""


if __name__ == "__main__":
    main()
