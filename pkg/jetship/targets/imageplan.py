"""The `image:` of a deploy.yaml: how images are called, and how their containers are run."""

import re
import string
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from jetship.targets.words import TextOrNumber, VariableName, Word
from jetship.yamlfile import Strict

_HOST_PART = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_NAME_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_VOLUME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_MOUNT = rf"(?:/[^:]*|{_VOLUME}):/[^:]*(?::(?:ro|rw)?)?"
_PORT = r"(?:[0-9.]+:|\[[0-9A-Fa-f:]+\]:)?([0-9]+):([0-9]+)(?:/(?:tcp|udp))?"
_DEVICE = r"/dev/[^:\s]+(?::/dev/[^:\s]+(?::[rwm]{1,3})?)?"
_USER = r"(?:[0-9]{1,9}|[a-z_][a-z0-9_-]*)(?::(?:[0-9]{1,9}|[a-z_][a-z0-9_-]*))?"
_TAG = r"(?:[A-Za-z0-9_]|\{[^{}]+\})(?:[A-Za-z0-9_.-]|\{[^{}]+\})*"
_REPOSITORY = rf"(?:{_HOST_PART}/)?{_NAME_PART}(?:/{_NAME_PART})*"
_REGISTRY = rf"{_HOST_PART}(?:/{_NAME_PART})*"
DEFAULT_TAG = "{version}-{target}"
# Beside the wheels: which image each target has.
INDEX_FILE = "images.json"
TAG_WORDS = ("version", "target", "platform", "wheel")


def _form(pattern: str) -> Any:
    """Return what tells an editor the form of a text; how it is wrong, our own sentences say."""
    return Field(json_schema_extra={"pattern": f"^(?:{pattern})$"})


def _is_mount(text: str) -> str:
    source, _, rest = text.partition(":")
    inside, _, mode = rest.partition(":")
    if not (source.startswith("/") or re.fullmatch(_VOLUME, source)):
        raise ValueError(f"{text!r} begins neither with a whole path nor with a volume's name")
    if not inside.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"{text!r} is not of the form /on/the/device:/in/the/container[:ro]")
    return text


def _is_port(text: str) -> str:
    match = re.fullmatch(_PORT, text)
    if match is None or not all(0 < int(port) < 65536 for port in match.groups()):
        raise ValueError(f"{text!r} is not of the form 8080:80, which is DEVICE:CONTAINER[/udp]")
    return text


def _is_device(text: str) -> str:
    if not re.fullmatch(_DEVICE, text):
        raise ValueError(f"{text!r} is not a device such as /dev/video0")
    return text


def _is_user(text: str) -> str:
    if not re.fullmatch(_USER, text):
        raise ValueError(f"{text!r} is not a user such as 1000, app or 1000:44")
    return text


def _is_tag(text: str) -> str:
    try:
        named = [name for _, name, _, _ in string.Formatter().parse(text) if name is not None]
        shown = text.format(**dict.fromkeys(TAG_WORDS, "x"))
    except (ValueError, LookupError) as error:
        listed = ", ".join(f"{{{word}}}" for word in TAG_WORDS)
        raise ValueError(f"{text!r} has a brace that means nothing; there are {listed}") from error
    if any(name not in TAG_WORDS for name in named) or not re.fullmatch(
        r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", shown
    ):
        raise ValueError(f"{text!r} does not make tags: letters, digits and _ . - only")
    return text


Mount = Annotated[str, AfterValidator(_is_mount), _form(_MOUNT)]
Port = Annotated[str, AfterValidator(_is_port), _form(_PORT)]
DeviceNode = Annotated[str, AfterValidator(_is_device), _form(_DEVICE)]


class ImagePlan(Strict):
    """How images are called, the command that shows that one works, and how they are run."""

    repository: Annotated[str, _form(_REPOSITORY)]
    """The image's name without registry and tag: acme/ops."""
    registry: Annotated[str, _form(f"(?:{_REGISTRY})?")] = ""
    """Where images are pushed to and devices may pull from: registry.example:5000."""
    tag: Annotated[str, AfterValidator(_is_tag), _form(_TAG)] = DEFAULT_TAG
    """The tag, with {version} of the wheel, {target}, {platform} and {wheel} (12 digits of its
    SHA-256)."""
    base: dict[str, Word] = Field(default_factory=dict)
    """By platform: a base image that the engine has, in place of jetship's own."""
    smoke: tuple[Word, ...] = Field(min_length=1)
    """Run in the image after it was made and on a device before it is taken: exit status 0 and
    JSON with `ok: true` on stdout mean that it works."""
    command: tuple[Word, ...] = ()
    """What runs on the devices (default: the command of the base image)."""
    environment: dict[VariableName, TextOrNumber] = Field(default_factory=dict)
    """Variables of the container's environment."""
    mounts: tuple[Mount, ...] = ()
    """/on/the/device:/in/the/container[:ro], or VOLUME:/in/the/container."""
    devices: tuple[DeviceNode, ...] = ()
    """More device nodes than the GPU's, such as /dev/video0."""
    groups: tuple[Word, ...] = ()
    """More groups of the device than those that the GPU needs, such as dialout."""
    ports: tuple[Port, ...] = ()
    """Published ports, ON-THE-DEVICE:IN-THE-CONTAINER[/udp]."""
    network: Literal["", "bridge", "host", "none"] = ""
    """The container's network (default: the engine's own, bridge)."""
    user: Annotated[str, _form(f"(?:{_USER})?")] = ""
    """The user in the container (default: the image's own, which is not root)."""
    shm_size: Annotated[str, Field(pattern=r"^(?:[1-9][0-9]*[kmg]?)?$")] = ""
    """The size of /dev/shm, such as 512m."""

    @field_validator("repository")
    @classmethod
    def _is_repository(cls, name: str) -> str:
        if not re.fullmatch(_REPOSITORY, name):
            raise ValueError(
                f"{name!r} is not an image repository such as jetship/jetops "
                "(lower case, without a tag)"
            )
        return name

    @field_validator("registry")
    @classmethod
    def _is_registry(cls, name: str) -> str:
        if name and not re.fullmatch(_REGISTRY, name):
            raise ValueError(f"{name!r} is not a registry such as registry.example:5000")
        return name

    @field_validator("user")
    @classmethod
    def _is_a_user(cls, name: str) -> str:
        return _is_user(name) if name else name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.network in ("host", "none") and self.ports:
            raise ValueError(f"ports are not published with network: {self.network}")
        return self

    @property
    def name(self) -> str:
        """The image's name without tag, with the registry where there is one."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository
