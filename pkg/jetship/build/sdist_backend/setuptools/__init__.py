"""Stands where pip looks for setuptools while it downloads an sdist; see build_meta."""
