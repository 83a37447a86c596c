"""The connection to the Docker engine, and its errors in jetship's words."""

import contextlib
import difflib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

import docker
import docker.errors
import docker.utils
import requests
from docker.context import ContextAPI
from docker.models.images import Image
from docker.tls import TLSConfig

from jetship.errors import ConfigError, ImageError, ToolMissingError

# How images name what the kernel calls the machine: architecture, variant.
OCI_NAMES = {"aarch64": ("arm64", "v8"), "x86_64": ("amd64", "")}

DEFAULT_SOCKET = "unix:///var/run/docker.sock"

# Loading a base image of half a gigabyte on a small machine takes longer than the SDK's minute.
TIMEOUT_SECONDS = 600

EMULATION_FIX = (
    "on Debian or Ubuntu: `apt-get install qemu-user-static binfmt-support`, and where that "
    "does not register it, `update-binfmts --enable qemu-aarch64` (in a container or virtual "
    "machine, `mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc` first)"
)


@dataclass(frozen=True)
class Endpoint:
    """Where an engine listens, and the certificates of a link over TLS."""

    host: str
    tls: TLSConfig | None = None


def endpoint() -> Endpoint:
    """Return where the engine listens, as the docker command chooses it.

    That is the context DOCKER_CONTEXT, else DOCKER_HOST, else the context that is in use
    (`docker context use`).

    Raises:
        ConfigError: there is no such context, or a certificate cannot be read.
    """
    named = os.environ.get("DOCKER_CONTEXT")
    if not named and os.environ.get("DOCKER_HOST"):
        with _certificates():
            given = docker.utils.kwargs_from_env()
        return Endpoint(os.environ["DOCKER_HOST"], given.get("tls") or None)
    with _certificates():
        context = ContextAPI.get_context(named or None)
    if context is None or not context.Host:
        if named:
            raise ConfigError(f"there is no docker context {named}", fix="docker context ls")
        return Endpoint(DEFAULT_SOCKET)
    return Endpoint(str(context.Host), context.TLSConfig)


@contextlib.contextmanager
def _certificates() -> Iterator[None]:
    try:
        yield
    except (docker.errors.DockerException, OSError, ValueError) as error:
        raise ConfigError(
            "the settings of the docker command cannot be read",
            why=str(error),
            fix="see DOCKER_CONTEXT, DOCKER_CERT_PATH and `docker context inspect`",
        ) from error


def connect(where: str | None = None) -> docker.DockerClient:
    """Connect to the Docker engine at `where` (default: `endpoint()`).

    Raises:
        ToolMissingError: there is none that answers; says which socket was tried and what to do.
        ConfigError: the docker command's own settings are wrong.
    """
    chosen = Endpoint(where) if where else endpoint()
    try:
        # First by hand, for the plain cause: the SDK buries it three exceptions deep.
        if chosen.host.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as plain:
                plain.connect(chosen.host.removeprefix("unix://"))
        client = docker.DockerClient(
            base_url=chosen.host, tls=chosen.tls or False, timeout=TIMEOUT_SECONDS
        )
        client.ping()
    except (docker.errors.DockerException, requests.RequestException, OSError) as error:
        raise ToolMissingError(
            f"no Docker engine answers at {chosen.host}",
            why=_why(error),
            fix=_fix(chosen.host, error),
        ) from error
    return client


@contextlib.contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn what the engine answers into an ImageError that has the engine's own message."""
    try:
        yield
    except docker.errors.APIError as error:
        raise ImageError(f"the Docker engine failed while {doing}", why=_text(error)) from error
    except (docker.errors.DockerException, requests.RequestException) as error:
        raise ImageError(
            f"the Docker engine went away while {doing}",
            why=str(error),
            fix="look at the engine's log (`journalctl -u docker`) and try again",
        ) from error


def architecture_of(client: docker.DockerClient, image: str) -> str | None:
    """Return the architecture that the engine records for an image, or None where it has none.

    Raises:
        ImageError: the engine fails.
    """
    with engine_errors(f"looking for {image}"):
        try:
            return str(client.images.get(image).attrs["Architecture"])
        except docker.errors.ImageNotFound:
            return None


def named_image(client: docker.DockerClient, name: str, machine: str) -> Image:
    """Return an image that the user named; it has to be there, and for the machine.

    Raises:
        ConfigError: the engine lacks it, or has it for another machine.
        ImageError: the engine fails.
    """
    with engine_errors(f"looking for {name}"):
        try:
            image = client.images.get(name)
        except docker.errors.ImageNotFound as error:
            known = [tag for one in client.images.list() for tag in one.tags]
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            raise ConfigError(
                f"the engine has no image {name}",
                fix=(f"did you mean {' or '.join(close)}? " if close else "")
                + f"`docker pull {name}` gets it, where a registry has it",
            ) from error
    wanted, found = OCI_NAMES[machine][0], image.attrs.get("Architecture")
    if found != wanted:
        raise ConfigError(
            f"the image {name} is for {found}, and the target is {wanted}",
            fix=f"pull it with `docker pull --platform linux/{wanted} {name}`",
        )
    return image


def label_of(client: docker.DockerClient, image: str, label: str) -> str | None:
    """Return what an image says under a label, or None where it does not."""
    with engine_errors(f"looking at {image}"):
        found = client.images.get(image).labels.get(label)
        return None if found is None else str(found)


def require_architecture(client: docker.DockerClient, image: str, machine: str, *, fix: str) -> str:
    """Return the architecture that the engine records for an image that is for `machine`.

    Raises:
        ImageError: it is another one, or the engine has no such image.
    """
    wanted = OCI_NAMES[machine][0]
    found = architecture_of(client, image)
    if found != wanted:
        raise ImageError(
            f"the engine records {found or 'nothing'} for {image}, not {wanted}", fix=fix
        )
    return wanted


def _text(error: docker.errors.APIError) -> str:
    return str(error.explanation or error)


def _why(error: Exception) -> str:
    if isinstance(error, PermissionError):
        return "the socket is there, and this user may not open it"
    if isinstance(error, FileNotFoundError):
        return "there is no such socket: the engine is not installed, or it is not running"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there: the engine is not running"
    return str(error)


def _fix(where: str, error: Exception) -> str:
    if where.startswith("ssh://"):
        return (
            f"bring its socket here: `ssh -nNT -L /tmp/engine.sock:/var/run/docker.sock {where}`, "
            "and in another terminal `export DOCKER_HOST=unix:///tmp/engine.sock`"
        )
    if isinstance(error, PermissionError):
        return "`sudo usermod -aG docker $USER`, then log in again"
    return (
        "install it (`apt-get install docker.io`, or Docker Desktop), start it "
        "(`sudo systemctl start docker`), and join its group (`sudo usermod -aG docker $USER`); "
        "an engine elsewhere is named by DOCKER_HOST"
    )
