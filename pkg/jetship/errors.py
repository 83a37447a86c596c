"""Every failure that a user can meet: one class a kind, one exit code a class.

A message says what went wrong, why, and what to do next. Anything that is not a
`JetshipError` is a defect of jetship and keeps its traceback.
"""


class JetshipError(Exception):
    """Base of all errors that are reported without a traceback.

    Args:
        what: one sentence, what went wrong.
        why: the cause, where it is known and not already in `what`.
        fix: what the reader can do next.
    """

    exit_code = 1

    def __init__(self, what: str, *, why: str = "", fix: str = "") -> None:
        self.what = what
        self.why = why
        self.fix = fix
        super().__init__(what)

    def to_json(self) -> dict[str, str | int]:
        """Return the error as machines read it."""
        return {"what": self.what, "why": self.why, "fix": self.fix, "exit_code": self.exit_code}

    def __str__(self) -> str:
        lines = [self.what]
        if self.why:
            lines.append(f"  why: {self.why}")
        if self.fix:
            lines.append(f"  fix: {self.fix}")
        return "\n".join(lines)


class ConfigError(JetshipError):
    """A request, deploy.yaml or a file under toolchains/ says something impossible."""

    exit_code = 2


class StdoutError(ConfigError):
    """The answer cannot be written to stdout, so no document can tell of it either."""


class NothingSelectedError(JetshipError):
    """The request is valid, and nothing answers to it."""

    exit_code = 3


class ToolMissingError(JetshipError):
    """A program or service of the build machine is missing, too old or does not answer."""

    exit_code = 4


class DownloadError(JetshipError):
    """Something could not be fetched, stored, or has another digest than the lock file."""

    exit_code = 5


class BuildError(JetshipError):
    """The project did not build."""

    exit_code = 6


class CheckError(JetshipError):
    """A wheel does not fit its target, or it cannot be told."""

    exit_code = 7


class ImageError(JetshipError):
    """An image could not be assembled, or what ran in it failed."""

    exit_code = 8


class RolloutError(JetshipError):
    """A rollout failed on some devices."""

    exit_code = 9


class BenchError(JetshipError):
    """Something that was to be measured could not be."""

    exit_code = 10


INTERRUPTED_EXIT_CODE = 130
