"""The task `check`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from jetship import console, hints
from jetship.errors import ConfigError, NothingSelectedError
from jetship.store import Store, default_root
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

if TYPE_CHECKING:
    from jetship.pin import Pin
    from jetship.survey import Asked as Against


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
    from jetship.check import shown
    from jetship.check.inputs import inputs_of
    from jetship.survey import Survey

    if html:
        from jetship.check import page

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
        shown.show(matrix)
    if matrix.rejected:
        error = shown.error_of(matrix)
        raise Reported(error) if json else error


def _explain(name: str, *, json: bool) -> None:
    from jetship.check.explain import as_text, explained

    rules = explained(name)
    if json:
        rows: list[dict[str, Any]] = [
            {"rule": key, **row.model_dump()} for key, row in rules.items()
        ]
        console.emit_json({"rules": rows})
    else:
        console.emit(hints.spoken("\n\n".join(as_text(rules))))


def _against(
    catalog: Catalog, asked: Asked, deploy: str, *, all_platforms: bool
) -> "Callable[[Pin | None], Against]":
    """Return what a wheel is checked against, by its pin record.

    Raises:
        ConfigError: targets are named in two ways at once, or are wrong.
    """
    from jetship.survey import Asked as Against

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

    def by_pin(pin: "Pin | None") -> Against:
        if pin is not None:
            return Against("pin")
        return Against("deploy", targets) if targets else Against("platforms")

    return by_pin


def _named(catalog: Catalog, asked: Asked) -> tuple[Target, ...]:
    if asked.target and asked == Asked(target=asked.target):
        return resolve_ids(catalog, asked.target)
    return targets_of(catalog, asked, deploy="")
