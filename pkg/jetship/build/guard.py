"""Compare this wheel with the machine that imports it, and say in one sentence what differs.

jetship writes this module into wheels of projects that ask for it, beside a pin record
(jetship.json in the wheel's .dist-info). `check()` runs before the compiled half is loaded,
because the loader's own words (undefined symbol, no kernel image) name none of the causes.

Set JETSHIP_GUARD=off to import without the comparison. Python 3.6 and later.
"""

import ctypes
import glob
import json
import os
import platform
import re
import sys

_ATTRIBUTE_CAPABILITY_MAJOR = 75  # CUdevice_attribute in cuda.h
_ATTRIBUTE_CAPABILITY_MINOR = 76


def check():
    """Raise ImportError with one sentence if this wheel does not fit this machine."""
    if os.environ.get("JETSHIP_GUARD") == "off":
        return
    record = _read_record()
    difference = _first_difference(record)
    if difference:
        raise ImportError(
            "%s was built for %s, and %s. Install the wheel for this machine, or set "
            "JETSHIP_GUARD=off to try all the same."
            % (__package__ or "this wheel", record["target"], difference)
        )


def _read_record():
    package = os.path.dirname(os.path.abspath(__file__))
    folder = glob.escape(os.path.dirname(package))
    mine = "%s/%s," % (os.path.basename(package), os.path.basename(__file__))
    for path in glob.glob(os.path.join(folder, "*.dist-info", "jetship.json")):
        # Another wheel's record may lie beside ours: RECORD says whose files are whose.
        listed = os.path.join(os.path.dirname(path), "RECORD")
        try:
            with open(listed, encoding="utf-8") as stream:
                if not any(line.startswith(mine) for line in stream):
                    continue
            with open(path, encoding="utf-8") as record:
                return json.load(record)
        except (OSError, ValueError):
            continue
    raise ImportError(
        "the pin record of %s (jetship.json in its .dist-info) is missing or damaged: install the "
        "wheel again" % (__package__ or "this wheel")
    )


def _first_difference(record):
    for compare in (_machine, _python, _torch, _gpu):
        difference = compare(record)
        if difference:
            return difference
    return None


def _machine(record):
    machine = platform.machine()
    if machine != record["machine"]:
        return "this machine is %s, not %s" % (machine, record["machine"])
    return None


def _python(record):
    wanted = record["python"]
    mine = "cp%d%d" % sys.version_info[:2]
    if wanted["abi"] in ("abi3", "none") or wanted["interpreter"] == mine:
        return None
    return "this Python is %s, not %s" % (mine, wanted["interpreter"])


def _torch(record):
    try:
        import torch
    except (ImportError, OSError) as error:
        return "torch cannot be imported here (%s)" % error
    wanted = record["torch"]
    if _release(torch.__version__) != _release(wanted["version"]):
        return "torch here is %s, not %s" % (torch.__version__, wanted["version"])
    if torch.version.cuda != wanted["cuda"]:
        return "torch here is built for %s, not %s" % (
            _cuda_name(torch.version.cuda),
            _cuda_name(wanted["cuda"]),
        )
    abi = bool(torch._C._GLIBCXX_USE_CXX11_ABI)
    if abi != wanted["cxx11_abi"]:
        return "torch here has the %s C++ ABI, not the %s one" % (
            _abi_name(abi),
            _abi_name(not abi),
        )
    return None


def _release(version):
    # NVIDIA's builds are called 2.1.0a0+41361538.nv23.06: what counts is 2.1.0.
    return re.match(r"[0-9.]*[0-9]", version).group()


def _cuda_name(version):
    return "CPU only" if version is None else "CUDA %s" % version


def _abi_name(cxx11):
    return "C++11" if cxx11 else "pre-C++11"


def _gpu(record):
    capabilities = _gpu_capabilities()
    code = record["cuda"]["code"]
    if not capabilities or not code:
        return None
    for capability in capabilities:
        if any(_runs(entry, capability, record["platform_kind"]) for entry in code):
            return None
    return "it has device code for %s, and this machine's GPU is %s" % (
        ", ".join(_code_name(entry) for entry in code),
        ", ".join("%d.%d" % capability for capability in capabilities),
    )


def _runs(entry, capability, kind):
    major, minor = (int(part) for part in entry["arch"].split("."))
    if entry["sass"] and (major, minor) == capability:
        return True
    # Machine code runs on later minor revisions of its major one, but never on or from Tegra.
    if entry["sass"] and kind == "server" and major == capability[0] and minor <= capability[1]:
        return True
    return entry["ptx"] and (major, minor) <= capability


def _code_name(entry):
    return entry["arch"] + ("+PTX" if entry["ptx"] else "")


def _gpu_capabilities():
    """Return the compute capability of every visible GPU, or an empty list without a driver.

    The driver is asked itself: torch.cuda would create a context, which takes memory and time
    from a program that may never use the GPU.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    found = []
    for device in range(count.value):
        major = _attribute(driver, device, _ATTRIBUTE_CAPABILITY_MAJOR)
        minor = _attribute(driver, device, _ATTRIBUTE_CAPABILITY_MINOR)
        if major is not None and minor is not None:
            found.append((major, minor))
    return found


def _attribute(driver, device, attribute):
    value = ctypes.c_int()
    if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
        return None
    return value.value
