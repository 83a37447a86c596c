"""Where the target's files are; its own module also sets up profilers."""

import os

from torch._standin import FACTS, unknown_to


def get_file_path(*path_components):
    """Return a path beside the target's torch."""
    return os.path.join(FACTS["site_packages"], *path_components)


__getattr__ = unknown_to(__name__)
