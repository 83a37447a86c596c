"""How the target's torch runs CPU loops; setup.py files look for OpenMP here."""


def parallel_info():
    """Return the line by which extensions recognise an OpenMP build of torch."""
    return "ATen parallel backend: OpenMP"


def show():
    """Return the same: the rest is known to the target's compiled half alone."""
    return parallel_info()
