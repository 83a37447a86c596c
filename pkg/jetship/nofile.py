"""What a path is that should be a file: opening a named pipe waits for ever, so nobody does."""

import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "is a folder",
    stat.S_IFIFO: "is a named pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


def why_no_file(path: Path) -> str:
    """Return what a path is in place of a file ("is a folder"), or "" where it is one.

    Links are followed. What cannot be looked at is told in the system's words.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "is a link to nothing" if path.is_symlink() else "does not exist"
    except (OSError, ValueError) as error:
        return f"cannot be looked at: {getattr(error, 'strerror', None) or error}"
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "is no file")
