"""bench.json: what it holds, and how the groups of several runs come together in one."""

import contextlib
import json
import os

FILE = "bench.json"
TRIED_BYTES = 2**18  # about what a whole run writes: a full disk takes an empty file


class ResultsError(Exception):
    """A file of results cannot be read or does not fit; the text says what to do."""


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
    """The results in a file.

    Raises:
        ResultsError: there is none, or it is no such file.
    """
    try:
        with open(path, encoding="utf-8") as stream:
            found = json.load(stream)
    except OSError as exc:
        raise ResultsError(f"{path} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise ResultsError(f"{path} is not JSON: {exc}; name a bench.json") from exc
    if not isinstance(found, dict) or not {"machine", "rows"} <= set(found):
        raise ResultsError(f"{path} has no machine and rows; name a bench.json of this benchmark")
    return found


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
    for key, value in empty.items():
        found.setdefault(key, value)
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
