"""Many wheels against many targets: each wheel is read once, each target's libraries once.

The reverse question, on which platforms and boards a wheel runs, is the same with all of them
as targets, but asks the libraries last: only where the wheel's own files do not say no already.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from jetship.check import prepared
from jetship.check.api import Unasked, check_facts, check_without_libraries
from jetship.check.findings import Finding, Report
from jetship.check.inputs import Input
from jetship.check.libraries import TargetLibraries
from jetship.check.matrix import Column, Matrix, Question, Subject
from jetship.check.wheel import Wheel
from jetship.errors import (
    CheckError,
    ConfigError,
    DownloadError,
    ImageError,
    JetshipError,
    ToolMissingError,
)
from jetship.pin import PIN_FILE, Pin
from jetship.store import Store
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.catalog import Catalog, runs_on
from jetship.targets.model import Target, parse_target_id
from jetship.toolchain.ownparts import NO_SUPPLY, OwnParts, OwnSupply

# What the rules that ask libraries said of one wheel, by the identity of these.
_Answers: TypeAlias = dict[int, dict[str, tuple[Finding, ...]]]
_NO_LIBRARIES = (ToolMissingError, DownloadError, ImageError, ConfigError)
_REFUSED = Unasked("the target's libraries were not asked, as it is refused without them")


@dataclass(frozen=True)
class Asked:
    """Against what wheels are checked.

    Args:
        question: why these targets; "pin" and "platforms" bring their own.
        targets: those that were named, or those of deploy.yaml.
    """

    question: Question
    targets: tuple[Target, ...] = ()


@dataclass(frozen=True)
class Survey:
    """How wheels are checked.

    Args:
        catalog: the known boards and platforms.
        store: the cache.
        own: the user's parts.
        fetch: download what is not at hand also for platforms that nobody named.
    """

    catalog: Catalog
    store: Store
    own: OwnSupply = NO_SUPPLY
    fetch: bool = False

    def run(self, inputs: Sequence[Input], asked: Callable[[Pin | None], Asked]) -> Matrix:
        """Check every input against what `asked` says of its pin record.

        What cannot be read has its error in the matrix, in place of reports.

        Raises:
            JetshipError: the libraries of the one target of one wheel cannot be had; of several,
                the others are answered, and the matrix says of this one why it is not.
        """
        pinned = _pinned(inputs)
        rows = [self._row(one, asked, pinned) for one in inputs]
        columns = _columns(rows)
        alone = len(rows) == 1 and len(columns) == 1
        reports: dict[tuple[int, int], Report] = {}
        for image, platform in _groups(rows, columns):
            # One platform's libraries at a time: together they would take gigabytes.
            libraries = _Libraries(self, alone=alone)
            for number, row in enumerate(rows):
                if row.wheel is None or row.image != image:
                    continue
                answers: _Answers = {}
                for place, column in enumerate(columns):
                    target = column.target
                    if target.platform.name == platform and target.id in row.ids:
                        report = self._cell(row.wheel, row, target, libraries, answers)
                        reports[number, place] = report
        return Matrix(tuple(row.subject for row in rows), tuple(columns), reports)

    def _row(
        self,
        one: Input,
        asked: Callable[[Pin | None], Asked],
        pinned: Mapping[str, tuple[str, ...]],
    ) -> "_Row":
        question: Question = "named"
        try:
            wheel = one.read()
            said = asked(wheel.pin)
            if one.image and said.question == "platforms":
                said = self._by_image(one.image, pinned.get(one.image, ()))
            question = said.question
            columns = self._columns_of(said, wheel)
        except (CheckError, ConfigError) as error:
            subject = Subject(one.place, one.name, one.kind, question, error=error)
            return _Row(subject, None, (), one.image)
        name = wheel.file.removesuffix(".dist-info")
        subject = Subject(one.place, name, one.kind, question, wheel.sha256)
        return _Row(subject, wheel, columns, one.image)

    def _columns_of(self, asked: Asked, wheel: Wheel) -> tuple[Column, ...]:
        if asked.question == "platforms":
            return all_columns(self.catalog)
        if asked.question != "pin" or wheel.pin is None:
            return tuple(map(Column, asked.targets))
        return (Column(self._built_for(wheel.pin.target)),)

    def _built_for(self, target: str) -> Target:
        code, name = parse_target_id(target)
        return Target(code, self.catalog.platform(name))

    def _by_image(self, image: str, pinned: Sequence[str]) -> Asked:
        """Return the target that the pinned packages of an image are for.

        Raises:
            ConfigError: there is none, or several.
        """
        if len(pinned) != 1:
            raise ConfigError(
                f"which platform the image {image} is of does not stand in it",
                why=f"its packages are built for {', '.join(pinned)}" if pinned else "",
                fix="name a target: --board orin --jetpack 6.2",
            )
        return Asked("pin", (self._built_for(pinned[0]),))

    def _cell(
        self,
        wheel: Wheel,
        row: "_Row",
        target: Target,
        libraries: "_Libraries",
        answers: _Answers,
    ) -> Report:
        eager = row.subject.question != "platforms"
        if not eager:
            first = check_without_libraries(wheel, target, _REFUSED)
            if first.outcome == "fail":
                return first
        own = self.own.of(target)
        if row.image is not None:
            own = OwnParts(image=row.image).over(own)
        lenient = not eager or row.image is not None
        found = libraries.of(target, own, fetch=eager or self.fetch, lenient=lenient)
        if isinstance(found, Unasked):
            return check_without_libraries(wheel, target, found)
        known = answers.setdefault(id(found), {})
        return check_facts(wheel, target, found, known)


@dataclass(frozen=True)
class _Row:
    """A subject with its facts, its columns and the image whose libraries it is to use."""

    subject: Subject
    wheel: Wheel | None
    columns: tuple[Column, ...]
    image: str | None

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(column.target.id for column in self.columns)


@dataclass
class _Libraries:
    """The libraries of one platform, or why they cannot be had, read when first asked for."""

    survey: Survey
    alone: bool
    known: dict[object, TargetLibraries] = field(default_factory=dict)
    lacking: dict[tuple[object, bool], Unasked] = field(default_factory=dict)

    def of(
        self, target: Target, own: OwnParts, *, fetch: bool, lenient: bool
    ) -> TargetLibraries | Unasked:
        """Return them; a request that is wrong itself is an error unless `lenient` is set."""
        key = prepared.libraries_key(target, own)
        if key not in self.known and (key, fetch) not in self.lacking:
            try:
                found = self._get(target, own, fetch=fetch)
            except _NO_LIBRARIES as error:
                if self.alone or (isinstance(error, ConfigError) and not lenient):
                    raise
                found = _unasked(error)
            if isinstance(found, Unasked):
                self.lacking[key, fetch] = found
            else:
                self.known[key] = found
        return self.known[key] if key in self.known else self.lacking[key, fetch]

    def _get(self, target: Target, own: OwnParts, *, fetch: bool) -> TargetLibraries | Unasked:
        store = self.survey.store
        if not fetch:
            prepared.require_parts(target, own)
        if fetch or prepared.are_at_hand(target, store, own):
            return prepared.target_libraries(target, store, own)
        return Unasked(
            f"the libraries of {target.platform.name} are not in the cache, so it cannot be told "
            "whether they have what it needs",
            "add --fetch, which downloads them (once)",
        )


def _unasked(error: JetshipError) -> Unasked:
    why = f": {error.why}" if error.why else ""
    return Unasked(f"the target's libraries cannot be had: {error.what}{why}", error.fix)


def all_columns(catalog: Catalog) -> tuple[Column, ...]:
    """Return every platform with every GPU that it is on a board with; emulation has none."""
    found = []
    for platform in catalog.platforms:
        if platform.kind == "emulation":
            found.append(Column(Target((), platform)))
            continue
        archs: dict[str, list[str]] = {}
        for board in catalog.boards:
            if runs_on(platform, board) and board.cpu in (None, platform.machine):
                archs.setdefault(board.arch, []).append(board.name)
        for arch, boards in archs.items():
            code = DeviceCode(Arch.parse(arch))
            found.append(Column(Target((code,), platform), tuple(boards)))
    return tuple(found)


def _pinned(inputs: Sequence[Input]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for one in inputs:
        if one.image and (one.path / PIN_FILE).is_file():
            with contextlib.suppress(CheckError):  # rule `pin` tells that
                pin = Pin.from_json((one.path / PIN_FILE).read_bytes())
                found.setdefault(one.image, {})[pin.target] = None
    return {image: tuple(targets) for image, targets in found.items()}


def _columns(rows: Sequence[_Row]) -> list[Column]:
    """Return the columns of all rows, each target once, in the order of their first row."""
    found: dict[str, Column] = {}
    for row in rows:
        for column in row.columns:
            if column.boards or column.target.id not in found:
                found[column.target.id] = column
    return list(found.values())


def _groups(rows: Sequence[_Row], columns: Sequence[Column]) -> Iterator[tuple[str | None, str]]:
    """Yield the image and the platform that libraries are read for, each pair once."""
    platforms = list(dict.fromkeys(column.target.platform.name for column in columns))
    for image in dict.fromkeys(row.image for row in rows):
        for platform in platforms:
            yield image, platform
