"""The task `check`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from invoke.context import Context
from rich.table import Table
from rich.text import Text

from jetship import console, hints
from jetship.check import page, text
from jetship.check.explain import explained
from jetship.check.inputs import inputs_of
from jetship.check.matrix import Matrix
from jetship.errors import CheckError, ConfigError, NothingSelectedError
from jetship.pin import Pin
from jetship.store import Store, default_root
from jetship.survey import Asked as Against
from jetship.survey import Survey
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target
from jetship.targets.resolve import resolve_ids
from jetship.tasks.command import Reported, command
from jetship.tasks.request import (
    DEPLOY_FILE,
    JSON_HELP,
    Asked,
    Given,
    Known,
    deployment_of,
    targets_of,
    targets_of_file,
)

_STYLES = {"ok": "green", "FAIL": "bold red", "????": "yellow", "no wheel": "bold red"}


@command(
    paths="wheels",
    records={"asked": Asked, "given": Given, "known": Known},
    help={
        "wheels": "the wheels to check; a folder stands for the wheels and the installed packages "
        "in it, the name of a container image for the packages that are installed in that",
        "arch": "compute capability of the GPU, such as 6.2 (TX2); several are checked one by one, "
        "or together with --fat",
        "target": "a target, such as sm62-debian-12 or 6.2/debian-12, or several: A,B,C",
        "fat": "all archs are wanted in one wheel",
        "cpu-only": "the wheel needs no device code",
        "deploy": "check against all targets of this file, such as "
        f"{DEPLOY_FILE}, which also answers for wheels without a pin record",
        "all-platforms": "on which of all known platforms and boards does it run, and what stops "
        "the others",
        "fetch": "for that, download the libraries that are not in the cache, where the wheel's "
        "own files leave the answer open",
        "explain": "what a rule asks, why and how: its name, or `all`",
        "html": "also write the answer as a page of its own into this file",
        "json": JSON_HELP,
    },
)
def check(
    _: Context,
    *,
    wheels: list[str],
    asked: Asked,
    given: Given,
    known: Known,
    deploy: str = "",
    all_platforms: bool = False,
    fetch: bool = False,
    explain: str = "",
    html: str = "",
    json: bool = False,
) -> None:
    """Prove that wheels will load and run on their targets, without them.

    Reads the ELF files, the device code and the metadata of each wheel, and looks up every
    symbol that it needs in the target's own libraries. Nothing is run. Each rule answers pass,
    fail or unknown, and unknown is never a pass.

        invoke check dist/*.whl                   each against the target that it was built for
        invoke check some.whl --arch 7.2 --jetpack 5.1
        invoke check dist --deploy deploy.yaml    all wheels in dist against all targets of the file
        invoke check some.whl --all-platforms     on what does it run, and what stops the others?
        invoke check my/image:tag --board orin --jetpack 6.2
        invoke check --explain symbols

    Where no target is named, a wheel that jetship built is checked against the one of its pin
    record, any other against the targets of deploy.yaml, and without these against all platforms.

    Exit status 0: all passed; where the question was on what a wheel runs, it is at least one
    board. 7: something failed or cannot be told.
    """
    if explain:
        _explain(explain, json=json)
        return
    if not wheels:
        raise NothingSelectedError(
            "no wheel was named",
            fix="invoke check dist/*.whl; or a folder, or an image; `invoke check --help` has more",
        )
    if html:
        page.require_writable(Path(html))
    file = deploy or str(DEPLOY_FILE)
    catalog = known.catalog(file)
    store = Store(default_root())
    against = _against(catalog, asked, deploy, all_platforms=all_platforms)
    survey = Survey(catalog, store, given.supply(catalog, file), fetch=fetch)
    matrix = survey.run(inputs_of(wheels, catalog, store), against)
    if html:
        page.write(matrix, Path(html))
        console.note(f"{html} has the reasons")
    if json:
        console.emit_json(matrix.to_json())
    else:
        _show(matrix)
    if matrix.rejected:
        error = _error(matrix)
        raise Reported(error) if json else error


def _explain(name: str, *, json: bool) -> None:
    rules = explained(name)
    if json:
        rows: list[dict[str, Any]] = [
            {"rule": key, **row.model_dump()} for key, row in rules.items()
        ]
        console.emit_json({"rules": rows})
    else:
        console.emit(hints.spoken("\n\n".join(text.explanations_text(rules))))


def _against(
    catalog: Catalog, asked: Asked, deploy: str, *, all_platforms: bool
) -> Callable[[Pin | None], Against]:
    """Return what a wheel is checked against, by its pin record.

    Raises:
        ConfigError: targets are named in two ways at once, or are wrong.
    """
    ways = [
        way
        for way, there in (
            ("--all-platforms", all_platforms),
            (f"--deploy {deploy}", deploy),
            ("a target", not asked.nothing),
        )
        if there
    ]
    if len(ways) > 1:
        raise ConfigError(
            f"{' and '.join(ways)} each say against what to check", fix="leave one of them out"
        )
    if all_platforms:
        return lambda _: Against("platforms")
    if deploy:
        from_file = targets_of_file(catalog, deploy)
        return lambda _: Against("deploy", from_file)
    if not asked.nothing:
        named = _named(catalog, asked)
        return lambda _: Against("named", named)
    deployment = deployment_of(catalog, str(DEPLOY_FILE))
    targets = deployment.resolve_targets(catalog) if deployment and deployment.targets else ()

    def by_pin(pin: Pin | None) -> Against:
        if pin is not None:
            return Against("pin")
        return Against("deploy", targets) if targets else Against("platforms")

    return by_pin


def _named(catalog: Catalog, asked: Asked) -> tuple[Target, ...]:
    if asked.target and asked == Asked(target=asked.target):
        return resolve_ids(catalog, asked.target)
    return targets_of(catalog, asked, deploy="")


def _show(matrix: Matrix) -> None:
    parts: list[str | Table] = []
    fixed = [n for n, one in enumerate(matrix.subjects) if one.question != "platforms"]
    if len(fixed) == 1 and len(list(matrix.of(fixed[0]))) == 1:
        parts += [text.render(report) for _, report in matrix.of(fixed[0])]
    elif fixed:
        parts.append(_table(*text.table(matrix)))
        parts += [told for number in fixed if (told := text.reasons(matrix, number))]
    for number, one in enumerate(matrix.subjects):
        if one.question == "platforms" and one.error is None:
            parts += _reverse(matrix, number)
        if one.error is not None:
            parts.append(f"{one.place}: {one.error}")
    for number, part in enumerate(parts):
        if number:
            console.emit("")
        if isinstance(part, str):
            console.emit(hints.spoken(part))
        else:
            console.stdout.print(part)


def _reverse(matrix: Matrix, number: int) -> list[str | Table]:
    rows = [
        [text.MARKS[outcome], platform, boards, reason]
        for outcome, platform, boards, reason in text.platform_rows(matrix, number)
    ]
    return [text.runs_on(matrix, number), _table(["", "platform", "boards", ""], rows)]


def _table(head: list[str], rows: list[list[str]]) -> str | Table:
    """Return a table: drawn for a terminal, as plain text for anything else."""
    if not console.stdout.is_terminal:
        return text.plain(head, rows)
    drawn = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in head:
        drawn.add_column(Text(name), overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(one, _STYLES.get(one.partition(" (")[0], "")) for one in row))
    return drawn


def _error(matrix: Matrix) -> CheckError:
    count = len(matrix.subjects)
    said = f"{len(matrix.rejected)} of {count} wheel{'' if count == 1 else 's'} did not pass"
    unknown = all(matrix.outcome(number) == "unknown" for number in matrix.rejected)
    if unknown:
        said += ", as it cannot be told"
    return CheckError(
        said,
        fix="see the findings; each says what to do, and `invoke check --explain RULE` why it asks",
    )
