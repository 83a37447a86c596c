"""The program for devices, as one text that `python3 -c` runs there."""

import functools
from importlib.resources import files

PACKAGE = "jetship.fleet.ondevice"
# In the order in which they import each other; the last one has `main`.
MODULES = (
    "folder",
    "engine",
    "containers",
    "lost",
    "health",
    "swap",
    "facts",
    "transfer",
    "supervise",
    "session",
)
_JOINED = """\
import sys
import types
for name, source in {modules!r}:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
sys.modules[{last!r}].main()
"""


@functools.cache
def program_source() -> str:
    """Return the program: its modules are put where their imports look for them."""
    folder = files(PACKAGE)
    names = [PACKAGE.rsplit(".", count)[0] for count in range(PACKAGE.count("."), 0, -1)]
    modules = [(name, "") for name in (*names, PACKAGE)]
    for name in MODULES:
        text = folder.joinpath(f"{name}.py").read_text(encoding="utf-8")
        modules.append((f"{PACKAGE}.{name}", text))
    return _JOINED.format(modules=modules, last=f"{PACKAGE}.{MODULES[-1]}")
