"""The pin: the ABI record that a wheel carries as `jetship.json` in its .dist-info."""

from typing import Literal, Self

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from jetship.errors import CheckError
from jetship.yamlfile import Strict

PIN_FILE = "jetship.json"


class PinnedTool(Strict):
    """Who wrote the record."""

    name: Literal["jetship"] = "jetship"
    version: str


class PinnedTorch(Strict):
    """The PyTorch of the target, and the release whose headers the extension was compiled with.

    Records of earlier jetships do not have `headers`.
    """

    version: str
    cuda: str | None
    cxx11_abi: bool
    headers: str | None = None


class PinnedCode(Strict):
    """Device code for one arch."""

    arch: str
    sass: bool
    ptx: bool


class PinnedCuda(Strict):
    """The CUDA of the target, the release of the nvcc that compiled, and what it made.

    `nvcc` is None where there was none, and in records of earlier jetships.
    """

    version: str
    code: tuple[PinnedCode, ...]
    nvcc: str | None = None


class PinnedPython(Strict):
    """The parts of the wheel tag that bind it to a Python: cp311, cp311 (or abi3, none)."""

    interpreter: str
    abi: str


class Pin(Strict):
    """What a wheel needs from the machine that loads it."""

    schema_version: Literal[1] = 1
    tool: PinnedTool
    target: str
    platform: str
    platform_kind: Literal["emulation", "jetpack", "server"]
    machine: str
    torch: PinnedTorch
    cuda: PinnedCuda
    python: PinnedPython
    glibc_floor: str | None
    """The newest GLIBC_ version that a library of the wheel asks for; None where it asks none."""

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a pin record.

        Raises:
            CheckError: it is not one, or of a newer schema.
        """
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            first = error.errors()[0]
            raise CheckError(
                f"{PIN_FILE} is not a pin record that this jetship can read",
                why=f"{PIN_FILE}: {_told(first)}",
                fix="build the wheel again, or update jetship",
            ) from error

    def to_json(self) -> bytes:
        """Return the record as UTF-8 JSON, the same bytes for the same record."""
        return (self.model_dump_json(indent=2) + "\n").encode()


def _told(detail: ErrorDetails) -> str:
    """Return what is wrong with a record, and where, without advice on how YAML is written."""
    place = ".".join(str(part) for part in detail["loc"])
    if not place:
        return "it is no JSON object" if detail["type"] != "json_invalid" else detail["msg"]
    if detail["type"] == "missing":
        return f"key {place!r} is missing"
    return f"{place}: {detail['msg']}"
