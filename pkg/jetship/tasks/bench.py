"""The task `bench`."""

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError
from jetship.store import Store, default_root
from jetship.tasks.command import command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Asked,
    Given,
    Known,
    project_of,
    targets_of,
    wheel_for,
)

if TYPE_CHECKING:
    from jetship.bench.checking import CheckTiming
    from jetship.bench.crossbuild import Timing
    from jetship.bench.operators import Wanted


@command(
    records={"asked": Asked, "given": Given, "known": Known},
    help={
        "build": "time a cross build against the emulated build of the same project",
        "check": "time the check of --wheel for the targets, with their libraries read and cached",
        "ops": "time jetops' operators on this machine against what one would use without them",
        "python": "with --ops: an interpreter that has torch and jetops (default: jetship's own)",
        "only": "with --ops: groups of nms, gelu, dropout, ingest and cpu-nms, with commas; the "
        "others in --out stay",
        "quick": "with --ops: fewer cases and samples",
        "out": "with --ops: the folder for page, JSON and plots (default: bench in --dist)",
        "compare": "with --ops: the bench.json of an earlier run, to show what changed since",
        "wheel": "what to check (default: the one in --dist for the target)",
        "project": "what to build, as for the task build",
        "deploy": DEPLOY_HELP,
        "dist": DIST_HELP,
        "json": JSON_HELP,
    },
)
def bench(
    _: Context,
    *,
    asked: Asked,
    given: Given,
    known: Known,
    build: bool = False,
    check: bool = False,
    ops: bool = False,
    python: str = "",
    only: str = "",
    quick: bool = False,
    out: str = "",
    compare: str = "",
    wheel: str = "",
    project: str = "",
    deploy: str = str(DEPLOY_FILE),
    dist: str = "dist",
    json: bool = False,
) -> None:
    """Measure, side by side in one run, what jetship and its operators claim of themselves.

        invoke bench --build --arch 6.2
        invoke bench --check --wheel ops.whl --arch 6.2
        invoke bench --ops --python venv/bin/python

    --build builds the project three times: in an arm64 container under emulation with the target's
    own compilers, crossed with an empty compiler cache, and crossed with a full one. Needs a Docker
    Engine on this machine and qemu-user (`invoke doctor --fix`); takes minutes. --check checks one
    wheel with the tables of the target's libraries made anew, and with those of the cache. --ops
    times the operators of jetops, on the GPU if there is one: NMS, GELU, bias + GELU + dropout and
    frame ingest; minutes, and the page that it writes says how to read it.
    """
    if (build, check, ops).count(True) != 1:
        raise ConfigError(
            "bench measures one thing, and none unasked",
            fix="invoke bench --build --arch 6.2, or --check, or --ops",
        )
    if ops:
        from jetship.bench.operators import Wanted

        _refuse_of_targets(asked, given, known, wheel=wheel, project=project, deploy=deploy)
        older = Path(compare) if compare else None
        wanted = Wanted(Path(out or Path(dist) / "bench"), only, older, quick)
        _measure_operators(python or sys.executable, wanted, json=json)
        return
    _refuse_of_ops(python=python, only=only, quick=quick, out=out, compare=compare)
    catalog = known.catalog(deploy)
    found = targets_of(catalog, asked.together, deploy=deploy)
    own_supply = given.supply(catalog, deploy)
    store = Store(default_root())
    if check:
        from jetship.bench import checking

        path = wheel_for(found[0], given=wheel, dist=dist)
        _print_checks(checking.compare(path, found, store, own_supply), json=json)
        return
    from jetship.bench import crossbuild
    from jetship.build.api import Order
    from jetship.build.environment import max_jobs
    from jetship.engine import connect
    from jetship.pipeline import toolchain_for

    (target, *more) = found
    if more:
        console.note(f"of the targets, {target.id} is measured")
    opened, settings = project_of(catalog, project, deploy, store)
    own = own_supply.of(target)
    toolchain = toolchain_for(opened, target, store, own)
    order = Order(opened, target, toolchain, settings, max_jobs())
    client = connect()
    timings = crossbuild.compare(order, store=store, logs=Path(dist) / "logs", client=client)
    if json:
        rows = [timing.to_json() for timing in timings]
        console.emit_json({"target": target.id, "jobs": order.jobs, "builds": rows})
        return
    console.emit("\n".join(map(_line, timings)))


def _measure_operators(python: str, wanted: "Wanted", *, json: bool) -> None:
    from jetship.bench import operators

    page = operators.measure(python, wanted)
    if json:
        console.emit_json(operators.results(wanted.out))
    else:
        console.emit(str(page))


def _refuse_of_ops(**given: object) -> None:
    names = [f"--{name}" for name, value in given.items() if value]
    if names:
        raise ConfigError(
            f"{' and '.join(names)} {'goes' if len(names) == 1 else 'go'} with --ops",
            fix=f"invoke bench --ops {names[0]} ...",
        )


def _refuse_of_targets(*records: Asked | Given | Known, deploy: str, **given: str) -> None:
    """The operators are timed on this machine, for no target and with no parts of one."""
    names = [
        field.name
        for record in records
        for field in fields(record)
        if getattr(record, field.name) != field.default
    ]
    names += [name for name, value in given.items() if value]
    names += ["deploy"] if deploy != str(DEPLOY_FILE) else []
    if names:
        options = [f"--{name.replace('_', '-')}" for name in names]
        verb = "goes" if len(names) == 1 else "go"
        raise ConfigError(
            f"{' and '.join(options)} {verb} with --build or --check",
            why="--ops times the operators on this machine, with the interpreter of --python",
            fix="leave out what names targets, their parts, a wheel or a project",
        )


def _print_checks(timings: "Sequence[CheckTiming]", *, json: bool) -> None:
    if json:
        console.emit_json({"checks": [timing.to_json() for timing in timings]})
        return
    console.emit("\n".join(f"{one.way:26} {one.seconds:8.2f} s" for one in timings))


def _line(timing: "Timing") -> str:
    return f"{timing.way:26} {timing.seconds:8.1f} s  {timing.ratio:6.1f} times"
