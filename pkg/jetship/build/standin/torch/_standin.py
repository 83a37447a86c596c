"""What all of the stand-in rests on: the facts, the errors, and which modules come from where."""

import importlib.abc
import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader

REPORT_TO = "the jetship project's issues"

with open(os.environ["JETSHIP_STANDIN_FACTS"], encoding="utf-8") as _stream:
    FACTS = json.load(_stream)

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.path.join(FACTS["site_packages"], "torch")
_SOURCES = os.path.realpath(os.environ.get("JETSHIP_SOURCES") or os.getcwd())
_SETUP = "<string>"  # what setuptools calls setup.py when it runs it
_MACHINERY = ("<frozen importlib", os.path.dirname(importlib.util.__file__) + os.sep)

# Plain Python that setup.py files import by name. What else of the target's is loaded is what
# these modules ask for themselves.
_PLAIN = ("torch.torch_version", "torch._appdirs", "torch._vendor", "torch.utils.cpp_extension",
          "torch.utils.hipify", "torch.utils._cpp_extension_versioner", "torch.utils.file_baton",
          )  # fmt: skip

_noted = set()


class NoGpu(RuntimeError, AssertionError):
    """The target is built for without a GPU; torch raises one or the other, by its build."""

    def __init__(self):
        super().__init__(
            "No CUDA GPUs are available: %s is built for without device code" % FACTS["target"]
        )


def unanswered(name):
    """Return the AttributeError for a name that cannot be answered, and note it in the log.

    hasattr() and getattr() with a default take it for a missing name, as setup.py files mean it.
    """
    asker = _asker()
    if (asker, name) not in _noted:
        _noted.add((asker, name))
        sys.stderr.write("note: %s was told that there is no %s\n" % (asker, name))
    return AttributeError(_complaint(asker, name))


def unknown_to(module):
    """Return a module's `__getattr__`, which names what the module cannot answer."""

    def __getattr__(name):
        # Python's own machinery asks for such names, and for modules before it imports them.
        asking = sys._getframe(1).f_code.co_filename
        if name.startswith("__") or asking.startswith(_MACHINERY):
            raise AttributeError("module %r has no attribute %r" % (module, name))
        raise unanswered("%s.%s" % (module, name))

    return __getattr__


def _complaint(asker, name):
    return (
        "%s asks for %s of torch %s, which jetship cannot answer for %s: the target's compiled "
        "code does not run on the machine that builds. If a build needs it, please report the line "
        "to %s." % (asker, name, FACTS["version"], FACTS["target"], REPORT_TO)
    )


def _asker():
    """Name the line that asks: that of setup.py, with that of torch where torch asks for it."""
    lines = [(f.f_code.co_filename, f.f_lineno) for f in _callers()]
    if not lines:
        return "something"
    own = next((line for line in lines if _is_projects(line[0])), None)
    first = lines[0]
    if own is None or own == first:
        return _shown(*first)
    return "%s (through %s)" % (_shown(*own), _shown(*first))


def _callers():
    """Yield the frames outside of the stand-in and of Python's import machinery."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((HERE + os.sep, *_MACHINERY)):
            yield frame
        frame = frame.f_back


def _is_projects(file):
    return file == _SETUP or os.path.realpath(file).startswith(_SOURCES + os.sep)


def _shown(file, line):
    if file == _SETUP:
        file = "setup.py"
    elif _is_projects(file):
        file = os.path.relpath(os.path.realpath(file), _SOURCES)
    elif file.startswith(FACTS["site_packages"] + os.sep):
        file = os.path.relpath(file, FACTS["site_packages"])
    return "%s, line %d" % (file, line)


class _Refusing(importlib.abc.Loader):
    """Stands for a module that the target has, and that cannot run here."""

    def create_module(self, spec):
        raise _import_error(spec.name)

    def exec_module(self, module):
        raise _import_error(module.__name__)


def _import_error(name):
    # Without `name`: `from torch import X` would take it for a mere missing submodule and lose
    # the sentence.
    return ModuleNotFoundError(_complaint(_asker(), name))


class _Adapting(SourceFileLoader):
    """Runs the target's cpp_extension, and takes the build machine out of it."""

    def exec_module(self, module):
        super().exec_module(module)
        from torch._cpp_extension import adapt

        adapt(module)


class Finder(importlib.abc.MetaPathFinder):
    """Says for every module of torch whether the stand-in, the target or nobody answers."""

    def find_spec(self, fullname, path=None, target=None):
        if not fullname.startswith("torch."):
            return None
        own = _own_file(fullname)
        if own is not None:
            return _spec_of_own(fullname, own)
        spec = PathFinder.find_spec(fullname, path)
        if not self._may_load(fullname):
            if spec is None and not self._is_only_looked_for():
                raise _import_error(fullname)
            return spec and ModuleSpec(fullname, _Refusing(), origin=spec.origin)
        if spec is not None and fullname == "torch.utils.cpp_extension":
            spec.loader = _Adapting(fullname, spec.origin)
        return spec

    @staticmethod
    def _may_load(fullname):
        if any(fullname == name or fullname.startswith(name + ".") for name in _PLAIN):
            return True
        asking = next(_callers(), None)
        return asking is not None and asking.f_code.co_filename.startswith(TARGET + os.sep)

    @staticmethod
    def _is_only_looked_for():
        frame, wanted = sys._getframe(1), importlib.util.find_spec.__code__
        while frame is not None and frame.f_code is not wanted:
            frame = frame.f_back
        return frame is not None


def _own_file(fullname):
    """Return the stand-in's file for a module, or None."""
    base = os.path.join(HERE, *fullname.split(".")[1:])
    for file in (base + ".py", os.path.join(base, "__init__.py")):
        if os.path.isfile(file):
            return file
    return None


def _spec_of_own(fullname, file):
    # A package has the target's modules beside the stand-in's own ones, which Finder knows.
    folder = os.path.join(TARGET, *fullname.split(".")[1:])
    is_package = os.path.basename(file) == "__init__.py" or os.path.isdir(folder)
    return importlib.util.spec_from_file_location(
        fullname, file, submodule_search_locations=[folder] if is_package else None
    )


def take_the_place_of_torch(module):
    """Make the module `torch` look as if it lay in the target's folder.

    setup.py files look for headers beside `torch.__file__` and in `torch.__path__[0]`.
    """
    sys.meta_path.insert(0, Finder())
    module.__path__ = [TARGET]
    module.__file__ = os.path.join(TARGET, "__init__.py")
    module.__spec__.origin = module.__file__
    module.__spec__.submodule_search_locations = module.__path__
