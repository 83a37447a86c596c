"""The `build:` of a deploy.yaml: what a project's build needs beside its sources."""

from typing import Annotated

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import AfterValidator, Field, field_validator

from jetship.targets.words import Text, VariableName, Word
from jetship.yamlfile import Strict

# What `env` of a deploy.yaml may not set: it is the target's, or leads to the toolchain.
GIVEN_BY_JETSHIP = frozenset({
    "CC", "CXX", "LDSHARED", "LDCXXSHARED", "AR", "PATH", "PYTHONPATH", "PYTHONHOME", "CUDA_HOME",
    "FORCE_CUDA", "TORCH_CUDA_ARCH_LIST", "_PYTHON_SYSCONFIGDATA_NAME", "_PYTHON_HOST_PLATFORM",
    "JETSHIP_STANDIN_FACTS", "JETSHIP_TARGET", "JETSHIP_SOURCES", "JETSHIP_CCACHE", "TMPDIR",
})  # fmt: skip


def _left_to_jetship(name: str) -> str:
    if name in GIVEN_BY_JETSHIP:
        raise ValueError(f"{name} cannot be set here: jetship sets it for the target")
    return name


def _a_constraint(text: str) -> str:
    try:
        extras = Requirement(text).extras
    except InvalidRequirement as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{text!r} is no constraint such as setuptools==80.9.0: {reason}"
        ) from None
    if extras:
        raise ValueError(f"{text!r} has extras, which pip takes in requirements only")
    return text


class BuildSettings(Strict):
    """How to build the project.

    `env` is added to the environment of the build. `before_build` are commands, each a program
    with its arguments, that run in the copy of the project before it is built, in the same
    environment. `time_limit_minutes` ends a build that hangs. `constraints` are versions of
    build requirements, as in a pip constraints file.
    """

    env: dict[Annotated[VariableName, AfterValidator(_left_to_jetship)], Text] = Field(
        default_factory=dict
    )
    before_build: tuple[tuple[Word, ...], ...] = ()
    time_limit_minutes: float = Field(default=120, gt=0)
    constraints: tuple[Annotated[Word, AfterValidator(_a_constraint)], ...] = ()

    @field_validator("before_build")
    @classmethod
    def _has_programs(cls, commands: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
        if not all(commands):
            raise ValueError("a command is a list such as [python3, tools/generate.py]")
        return commands
