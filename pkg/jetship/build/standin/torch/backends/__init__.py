"""Which backends the target's torch was built with."""

from types import SimpleNamespace

cuda = SimpleNamespace(is_built=lambda: True)
cudnn = SimpleNamespace(is_available=lambda: True)
mps = SimpleNamespace(is_built=lambda: False, is_available=lambda: False)
