"""bench.json: what it holds, and how the groups of several runs come together in one."""

import contextlib
import json
import os
import re

FILE = "bench.json"
TOP = ("machine", "ceilings", "groups", "rows")
ROW_TEXTS = ("group", "case", "contender", "mode", "device", "op", "note")
ROW_TIMES = ("us", "low", "high")
ROW_WORK = ("bytes", "operations", "instructions")
# Cases that plots take apart: an element type and a count, or an element type, a shape and a form.
CASES = {
    "gelu": re.compile(r"[^ ]+ [0-9]{1,18}( .*)?$"),
    "dropout": re.compile(r"[^ ]+ [^ ]+ [^ ]+( .*)?$"),
}
LARGEST = 1e30  # of any number here; what is larger is damage, and would overflow further on
TRIED_BYTES = 2**18  # about what a whole run writes: a full disk takes an empty file


class ResultsError(Exception):
    """A file of results cannot be read or does not fit; the text says what to do."""


class _Wrong(Exception):
    """Something in the results is not what it has to be; the text says where."""


class WriteError(Exception):
    """A file cannot be written, and nothing of it is left; the text says which and why."""


def prepare(folder):
    # type: (str) -> None
    """Make the folder for results and see that a file can be written there.

    Raises:
        ResultsError: it cannot.
    """
    path = os.path.join(folder, FILE)
    part = path + ".part"
    try:
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(path):
            raise ResultsError(f"{path} is a folder; move it away, or name another --out")
        try:
            with open(part, "wb") as stream:
                stream.write(bytes(TRIED_BYTES))
        finally:
            with contextlib.suppress(OSError):
                os.remove(part)
    except OSError as exc:
        raise ResultsError(
            f"nothing can be written to {folder}: {exc.strerror}; name a folder with --out that can "
            "be written to and has room"
        ) from exc


def read(path):
    # type: (str) -> dict
    """The results in a file, all of which have been checked.

    Raises:
        ResultsError: there is none, or it is no such file; names the place in it.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream, parse_constant=_not_finite)
    except OSError as exc:
        raise ResultsError(f"{path} cannot be read: {exc.strerror}; name a bench.json") from exc
    except ValueError as exc:
        raise ResultsError(f"{path} is not JSON: {exc}; name a bench.json") from exc
    except RecursionError as exc:
        raise ResultsError(f"{path} is nested too deeply; name a bench.json") from exc
    try:
        check(found)
    except _Wrong as exc:
        raise ResultsError(
            f"{path} does not hold results of this benchmark: {exc}; name another bench.json, or "
            "measure again into another folder"
        ) from exc
    return found


def _not_finite(word):
    # type: (str) -> None
    raise ValueError(f"{word} is no number there")


def check(found):
    # type: (object) -> None
    """See that results have all that pages, plots and comparisons make use of.

    Raises:
        _Wrong: they have not.
    """
    machine, ceilings, groups, rows = _parts(found, TOP, "it")
    _parts(machine, ("device",), "machine")
    for key, value in machine.items():
        _text(key, "a name in machine")
        if key == "device" or not (value is None or _is_number(value)):
            _text(value, f"machine.{key}")
    for device, one in _object(ceilings, "ceilings").items():
        _check_ceilings(one, f"ceilings.{device}")
    for name, about in _object(groups, "groups").items():
        _text(name, "a name in groups")
        _check_group(about, f"groups.{name}")
    for index, row in enumerate(_list(rows, "rows")):
        _check_row(row, f"rows[{index}]")


def _check_ceilings(found, place):
    # type: (object, str) -> None
    names = ("copy_gbps", "fma_gflops", "cached_gbps", "smallest_us")
    for name, value in zip(names, _parts(found, names, place)):
        optional = name in ("cached_gbps", "smallest_us")
        if not (optional and value is None) and not (_is_number(value) and value > 1 / LARGEST):
            raise _Wrong(f"{place}.{name} has to be a number above 0")
    (how,) = _parts(found, ("fma_how",), place)
    _text(how, f"{place}.fma_how")


def _check_group(found, place):
    # type: (object, str) -> None
    quick, about, remarks = _parts(found, ("quick", "about", "remarks"), place)
    if not isinstance(quick, bool):
        raise _Wrong(f"{place}.quick has to be true or false")
    for name, lines in (("about", about), ("remarks", remarks)):
        for index, line in enumerate(_list(lines, f"{place}.{name}")):
            _text(line, f"{place}.{name}[{index}]")
    if "failed" in found:
        _text(found["failed"], f"{place}.failed")


def _check_row(row, place):
    # type: (object, str) -> None
    for name, value in zip(ROW_TEXTS, _parts(row, ROW_TEXTS, place)):
        _text(value, f"{place}.{name}")
    times = _parts(row, ROW_TIMES, place)
    if not (all(value is None for value in times) or all(map(_is_number, times))):
        raise _Wrong(f"{place}: us, low and high have to be numbers, or null all three")
    work = _parts(row, ROW_WORK, place)
    for name, value in zip(ROW_WORK, work):
        if value is not None and not (_is_number(value) and value >= 0):
            raise _Wrong(f"{place}.{name} has to be a number of at least 0, or null")
    if row["op"] and not all(work):
        raise _Wrong(f"{place}: op is there, so bytes, operations and instructions have to be")
    case = CASES.get(row["group"])
    if case is not None and not case.match(row["case"]):
        raise _Wrong(f"{place}.case is none of the group {row['group']}")


def _object(found, place):
    # type: (object, str) -> dict
    if not isinstance(found, dict):
        raise _Wrong(f"{place} has to be an object")
    return found


def _parts(found, names, place):
    # type: (object, Tuple[str, ...], str) -> list
    missing = [name for name in names if name not in _object(found, place)]
    if missing:
        raise _Wrong(f"{place} has no {' and no '.join(missing)}")
    return [found[name] for name in names]


def _list(found, place):
    # type: (object, str) -> list
    if not isinstance(found, list):
        raise _Wrong(f"{place} has to be a list")
    return found


def _text(found, place):
    # type: (object, str) -> None
    if not isinstance(found, str):
        raise _Wrong(f"{place} has to be text")
    try:
        found.encode("utf-8")
    except UnicodeEncodeError as exc:
        raise _Wrong(f"{place} has half of a character") from exc


def _is_number(found):
    # type: (object) -> bool
    return (
        isinstance(found, (int, float))
        and not isinstance(found, bool)
        and -LARGEST < found < LARGEST
    )


def begin(folder, machine, only_some):
    # type: (str, dict, bool) -> dict
    """What a run adds to: nothing, or the results in ``folder`` where only some groups are run.

    Raises:
        ResultsError: those are of another machine or other versions.
    """
    empty = {"machine": machine, "ceilings": {}, "groups": {}, "rows": []}
    path = os.path.join(folder, FILE)
    if not only_some or not os.path.exists(path):
        return empty
    found = read(path)
    changed = sorted(
        name
        for name in set(machine) | set(found["machine"])
        if machine.get(name) != found["machine"].get(name)
    )
    if changed:
        said = ", ".join(
            f"{name} {found['machine'].get(name)} there and {machine.get(name)} here"
            for name in changed
        )
        raise ResultsError(
            f"{path} is of another run: {said}. With --only its other groups would be kept, so name "
            "another folder with --out, or move the file away"
        )
    return found


def with_group(result, name, rows, about):
    # type: (dict, str, List[dict], dict) -> dict
    """The results with all of one group replaced."""
    kept = [row for row in result["rows"] if row["group"] != name]
    groups = dict(result["groups"])
    groups[name] = about
    merged = dict(result)
    merged.update(rows=kept + rows, groups=groups)
    return merged


@contextlib.contextmanager
def replacing(folder, name):
    # type: (str, str) -> Iterator[str]
    """The name to write a file under; it takes the file's place when all of it is there.

    Raises:
        WriteError: it cannot be written.
    """
    path = os.path.join(folder, name)
    part = path + ".part"
    try:
        os.makedirs(folder, exist_ok=True)
        yield part
        os.replace(part, path)
    except BaseException as exc:
        with contextlib.suppress(OSError):
            os.remove(part)
        if isinstance(exc, OSError):
            raise WriteError(f"{path} cannot be written: {exc.strerror or exc}") from exc
        raise


def write_text(folder, name, text):
    # type: (str, str, str) -> None
    with replacing(folder, name) as part, open(part, "w", encoding="utf-8") as stream:
        stream.write(text)


def save(folder, result):
    # type: (str, dict) -> None
    """A row a line, so that two runs can be told apart by diff."""
    head = {key: value for key, value in result.items() if key != "rows"}
    lines = json.dumps(head, indent=1, allow_nan=False)[: -len("\n}")]
    rows = ",\n".join("  " + json.dumps(row, allow_nan=False) for row in result["rows"])
    write_text(folder, FILE, f'{lines},\n "rows": [\n{rows}\n ]\n}}\n')
