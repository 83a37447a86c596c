"""A build backend that reads an sdist's PKG-INFO instead of running its setup.py.

`pip download` asks the backend for the metadata of every sdist that it has fetched. The real
setuptools would run setup.py for it, which imports torch and asks for CUDA, on this machine, at a
time when nobody has asked for a build. The name and the version are in PKG-INFO already.
"""

import email
import re
import sys
from pathlib import Path


def get_requires_for_build_wheel(config_settings=None):
    return []


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    text = Path("PKG-INFO").read_text(encoding="utf-8")
    fields = email.message_from_string(text)
    name = re.sub(r"[-_.]+", "_", fields["Name"])
    folder = Path(metadata_directory, f"{name}-{fields['Version']}.dist-info")
    folder.mkdir()
    (folder / "METADATA").write_text(text, encoding="utf-8")
    return folder.name


def _refuse(*args, **kwargs):
    raise RuntimeError("only the metadata of this project is asked for")


# A backend in the project's own tree, which pip imports, may take these from here by name.
build_wheel = build_sdist = build_editable = _refuse
get_requires_for_build_sdist = get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel

__legacy__ = sys.modules[__name__]  # what a project without pyproject.toml is built with
