"""From a checked wheel and a base image to the runtime image; nothing runs under emulation."""

import hashlib
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import docker

from jetship import console
from jetship.check.findings import Report
from jetship.datafiles import data_dir
from jetship.engine import OCI_NAMES, engine_errors, require_architecture
from jetship.errors import CheckError, ImageError
from jetship.image.base import packages_folder
from jetship.image.tree import Layer, epoch, write_tar
from jetship.image.wheelfile import WheelFacts, install, read_wheel
from jetship.targets.model import Platform, Target

DOCKERFILE = "Dockerfile.runtime"
MAX_TAG = 128
SHOWN_LINES = 15


@dataclass(frozen=True)
class ImageResult:
    """An image that the engine has now."""

    tag: str
    id: str
    architecture: str


def build_image(
    *,
    wheel: Path,
    target: Target,
    base: str,
    repository: str,
    report: Report,
    client: docker.DockerClient,
) -> ImageResult:
    """Build the runtime image of a checked wheel.

    Args:
        wheel: the wheel; these very bytes must be the ones that `report` is about.
        target: what the wheel was built for.
        base: the base image's name, which the engine must have.
        repository: the image's name without tag.
        report: the check's answer.
        client: the engine.

    Raises:
        CheckError: the report is not all pass, or is about something else.
        ImageError: the engine fails, or the image is for another machine.
    """
    facts = read_wheel(wheel)
    require_passed(report, facts, target)
    tag = image_tag(repository, facts, target)
    arguments = _arguments(facts, target, base)
    console.step(f"building {tag}")
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch) / "context.tar"
        write_context(context, wheel, target.platform)
        _build(client, context, tag, target.platform, arguments)
    found = require_architecture(
        client, tag, target.platform.machine, fix=f"name another base image than {base}"
    )
    with engine_errors(f"looking for {tag}"):
        return ImageResult(tag, str(client.images.get(tag).id), found)


def require_passed(report: Report, facts: WheelFacts, target: Target) -> None:
    """Refuse a wheel that was not checked for this target, or did not pass.

    Raises:
        CheckError: the report is not all pass, or is about another wheel or target.
    """
    asked = f"run `invoke check` on {facts.file} for {target.id}"
    if report.sha256 != facts.sha256:
        raise CheckError(
            f"the check report is about another wheel than {facts.file}",
            why=f"report: sha256 {report.sha256}, wheel: {facts.sha256}",
            fix=asked,
        )
    if report.target != target.id or facts.pin.target != target.id:
        raise CheckError(
            f"{facts.file} is not for {target.id}",
            why=f"it was built for {facts.pin.target} and checked for {report.target}",
            fix=asked,
        )
    if report.outcome != "pass":
        blocking = [finding.reason for finding in report.findings if finding.blocks]
        raise CheckError(
            f"{facts.file} did not pass its check ({report.outcome}), so no image is made of it",
            why="; ".join(blocking[:3]),
            fix=f"{asked} and mend what it names",
        )


def image_tag(repository: str, facts: WheelFacts, target: Target) -> str:
    """Return the image's full name: repository:0.1.0-sm62-debian-12."""
    public = facts.version.split("+", 1)[0].replace("!", "_")
    tag = f"{public}-{target.id}"
    if len(tag) > MAX_TAG:
        # A wheel for very many archs: keep the platform readable, and the whole distinct.
        digest = hashlib.sha256(tag.encode()).hexdigest()[:12]
        tag = f"{public}-{digest}-{target.platform.name}"
    return f"{repository}:{tag}"


def write_context(path: Path, wheel: Path, platform: Platform) -> None:
    """Write the build context: the Dockerfile, and the installed wheel under root/.

    Raises:
        ImageError: the wheel cannot be installed.
    """
    dockerfile = (data_dir("docker") / DOCKERFILE).read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        install(wheel, Path(scratch), packages_folder(platform))
        layer = Layer(Path(scratch), prefix="root", plain_modes=True)
        with path.open("wb") as out:
            write_tar(out, layer, extra={DOCKERFILE: dockerfile})


def _arguments(facts: WheelFacts, target: Target, base: str) -> dict[str, str]:
    return {
        "BASE": base,
        "TITLE": facts.name,
        "DESCRIPTION": facts.summary,
        "VERSION": facts.version,
        "CREATED": datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "TARGET": target.id,
        "PIN": facts.pin_json,
        "WHEEL": facts.file,
        "WHEEL_SHA256": facts.sha256,
    }


def _build(
    client: docker.DockerClient,
    context: Path,
    tag: str,
    platform: Platform,
    arguments: Mapping[str, str],
) -> None:
    with context.open("rb") as stream, engine_errors(f"building {tag}"):
        answers = client.api.build(
            fileobj=stream,
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=tag,
            buildargs=dict(arguments),
            platform="linux/" + OCI_NAMES[platform.machine][0],
            rm=True,
            forcerm=True,
            decode=True,
        )
        _follow(answers, tag, arguments["BASE"])


def _follow(answers: Iterable[Mapping[str, Any]], tag: str, base: str) -> None:
    """Read the engine's answers to the end.

    Raises:
        ImageError: one of them is an error.
    """
    said: list[str] = []
    failure = ""
    # To the very end, past an error: an answer that is not read out keeps its connection.
    for answer in answers:
        failure = failure or str(answer.get("error", "")).strip()
        line = str(answer.get("stream", "")).strip()
        if line:
            console.debug(line)
            said.append(line)
    if failure:
        absent = re.search(r"pull access denied|manifest unknown|not found|no such host", failure)
        raise ImageError(
            f"{tag} could not be built",
            why="\n       ".join([*said[-SHOWN_LINES:], failure]),
            fix=f"make sure that the engine has {base} (`docker images`)" if absent else "",
        )
