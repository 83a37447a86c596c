"""Answers of the standard library that are the target's: its machine, and where its headers are.

Python imports this first of all in a build's processes. sysconfig's variables come from the target
(see environment.py); these two questions go past them.
"""

import os
import sysconfig


def answer_for(machine, include):
    """Let the standard library answer with a machine's name and the folder of Python.h."""
    host_uname = os.uname

    def uname():
        return os.uname_result((*host_uname()[:4], machine))

    os.uname = uname  # platform.machine() asks this as well
    # get_path("include") is made from schemes and not from variables.
    for scheme in sysconfig._INSTALL_SCHEMES.values():
        for key in {"include", "platinclude"} & scheme.keys():
            scheme[key] = include.replace("{", "{{").replace("}", "}}")


if "JETSHIP_MACHINE" in os.environ:
    answer_for(os.environ["JETSHIP_MACHINE"], os.environ["JETSHIP_PYTHON_INCLUDE"])
