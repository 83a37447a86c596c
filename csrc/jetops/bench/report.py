"""Results as Markdown."""

import math


def markdown(result):
    # type: (dict) -> str
    """A table for each group and mode: cases down, contenders across, microseconds."""
    machine = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    parts = [f"# jetops on {result['machine']['device']}\n\n{machine}\n"]
    tables = {}  # type: dict
    for row in result["rows"]:
        table = tables.setdefault((row["group"], row["mode"]), {})
        table.setdefault(row["case"], {})[row["contender"]] = row
    for (group, mode), table in tables.items():
        parts.append(f"## {group}, {mode}\n\n" + _table(table))
    return "\n".join(parts)


def _table(table):
    # type: (dict) -> str
    contenders = []  # type: list
    for rows in table.values():
        contenders += [name for name in rows if name not in contenders]
    lines = [
        "| case | " + " | ".join(contenders) + " |",
        "|---|" + "---:|" * len(contenders),
    ]
    for case, rows in table.items():
        cells = [_cell(rows.get(name)) for name in contenders]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row):
    # type: (dict) -> str
    if row is None:
        return ""
    if row["note"] or math.isnan(row["us"]):
        return "cannot"
    return f"{row['us']:.1f}" if row["us"] < 1e4 else f"{row['us']:.0f}"


def comparison(old, new):
    # type: (dict, dict) -> str
    """Rows of both runs whose spreads do not touch, the largest change first."""

    def key(row):
        return tuple(row[name] for name in ("group", "case", "contender", "mode"))

    before = {key(row): row for row in old["rows"]}
    changes = []
    for row in new["rows"]:
        past = before.get(key(row))
        if past is not None and (row["low"] > past["high"] or row["high"] < past["low"]):
            changes.append((row["us"] / past["us"], past["us"], row))
    if not changes:
        return "no change beyond the spread of both runs"
    changes.sort(key=lambda change: -abs(math.log(change[0])))
    return "\n".join(
        f"{ratio:5.2f}x  {was:10.1f} -> {row['us']:10.1f} us  {' '.join(key(row))}"
        for ratio, was, row in changes
    )
