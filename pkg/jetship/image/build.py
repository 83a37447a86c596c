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
import docker.errors

from jetship import console
from jetship.check.findings import Report
from jetship.datafiles import data_dir
from jetship.engine import OCI_NAMES, engine_errors, require_architecture
from jetship.errors import CheckError, ImageError
from jetship.image.base import packages_folder
from jetship.image.tree import OPEN_TO_ALL, Layer, epoch, write_tar
from jetship.image.wheelfile import WheelFacts, install, read_wheel
from jetship.targets.imageplan import DEFAULT_TAG
from jetship.targets.model import Platform, Target

DOCKERFILE = "Dockerfile.runtime"
HOME = "/home/jetship"  # as Dockerfile.runtime has it
MAX_TAG = 128
SHOWN_LINES = 15


@dataclass(frozen=True)
class ImageResult:
    """An image that the engine has now."""

    tag: str
    id: str
    architecture: str
    digest: str = ""
    """By which a registry has it, or ""."""


def build_image(
    *,
    wheel: Path,
    target: Target,
    base: str,
    repository: str,
    report: Report,
    client: docker.DockerClient,
    tag: str = DEFAULT_TAG,
) -> ImageResult:
    """Build the runtime image of a checked wheel.

    Args:
        wheel: the wheel; these very bytes must be the ones that `report` is about.
        target: what the wheel was built for.
        base: the base image's name, which the engine must have.
        repository: the image's name without tag.
        report: the check's answer.
        client: the engine.
        tag: the tag's template, as `image.tag` of deploy.yaml.

    Raises:
        CheckError: the report is not all pass, or is about something else.
        ImageError: the engine fails, or the image is for another machine.
    """
    facts = read_wheel(wheel)
    require_passed(report, facts, target)
    name = image_name(repository, facts, target, tag)
    pulled = repository_digest(client, base)
    arguments = _arguments(facts, target, base, pulled)
    console.step(f"building {name}")
    with tempfile.TemporaryDirectory() as scratch:
        context = Path(scratch) / "context.tar"
        write_context(context, wheel, target.platform)
        _build(
            client,
            context,
            tag=name,
            platform=target.platform,
            arguments=arguments,
            labels=_labels(facts, pulled),
        )
    found = require_architecture(
        client, name, target.platform.machine, fix=f"name another base image than {base}"
    )
    with engine_errors(f"looking for {name}"):
        made = str(client.images.get(name).id)
    return ImageResult(name, made, found, repository_digest(client, name).rpartition("@")[2])


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


def image_name(
    repository: str, facts: WheelFacts, target: Target, template: str = DEFAULT_TAG
) -> str:
    """Return the image's full name: repository:0.1.0-sm62-debian-12."""
    words = {
        "version": facts.version.split("+", 1)[0].replace("!", "_"),
        "target": target.id,
        "platform": target.platform.name,
        "wheel": facts.sha256[:12],
    }
    tag = template.format(**words)
    if len(tag) > MAX_TAG:
        # A wheel for very many archs: keep the platform readable, and the whole distinct.
        digest = hashlib.sha256(tag.encode()).hexdigest()[:12]
        tag = template.format(**words | {"target": f"{digest}-{target.platform.name}"})
    return f"{repository}:{tag[:MAX_TAG]}"


def repository_digest(client: docker.DockerClient, image: str) -> str:
    """Return name@sha256:... by which a registry has an image, or "" where it is from none.

    Raises:
        ImageError: the engine fails, other than by not having the image.
    """
    with engine_errors(f"looking for {image}"):
        try:
            found = client.images.get(image).attrs.get("RepoDigests") or []
        except docker.errors.ImageNotFound:
            return ""
    folder, slash, last = image.partition("@")[0].rpartition("/")
    repository = f"{folder}{slash}{last.partition(':')[0]}"  # a host before it may have a port
    return next((str(one) for one in found if one.partition("@")[0] == repository), "")


def write_context(path: Path, wheel: Path, platform: Platform) -> None:
    """Write the build context: the Dockerfile, and the installed wheel under root/.

    Raises:
        ImageError: the wheel cannot be installed.
    """
    dockerfile = (data_dir("docker") / DOCKERFILE).read_bytes()
    with tempfile.TemporaryDirectory() as scratch:
        install(wheel, Path(scratch), packages_folder(platform))
        home = Path(scratch) / HOME.lstrip("/")
        home.mkdir(parents=True, exist_ok=True)
        home.chmod(OPEN_TO_ALL)
        layer = Layer(Path(scratch), prefix="root", plain_modes=True)
        with path.open("wb") as out:
            write_tar(out, layer, extra={DOCKERFILE: dockerfile})


def _arguments(facts: WheelFacts, target: Target, base: str, pulled: str) -> dict[str, str]:
    return {
        # By its digest, where it has one: the name may mean another image tomorrow.
        "BASE": pulled or base,
        "BASE_NAME": base,
        "TITLE": facts.name,
        "DESCRIPTION": facts.summary,
        "VERSION": facts.version,
        "CREATED": datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "TARGET": target.id,
        "PIN": facts.pin_json,
        "WHEEL": facts.file,
        "WHEEL_SHA256": facts.sha256,
    }


def _labels(facts: WheelFacts, pulled: str) -> dict[str, str]:
    """Return the labels (OCI image-spec, annotations) for what not every image has."""
    found = {
        "licenses": facts.licenses,
        "source": facts.source,
        "base.digest": pulled.rpartition("@")[2],
    }
    return {f"org.opencontainers.image.{key}": value for key, value in found.items() if value}


def _build(
    client: docker.DockerClient,
    context: Path,
    *,
    tag: str,
    platform: Platform,
    arguments: Mapping[str, str],
    labels: Mapping[str, str],
) -> None:
    with context.open("rb") as stream, engine_errors(f"building {tag}"):
        answers = client.api.build(
            fileobj=stream,
            custom_context=True,
            dockerfile=DOCKERFILE,
            tag=tag,
            buildargs=dict(arguments),
            labels=dict(labels),
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
