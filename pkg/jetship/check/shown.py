"""The answer of a check on a terminal: tables with colours, and what plain text has of them."""

from rich.table import Table
from rich.text import Text

from jetship import console, hints
from jetship.check import text
from jetship.check.matrix import Matrix
from jetship.errors import CheckError, JetshipError

_STYLES = {"ok": "green", "FAIL": "bold red", "????": "yellow", "no wheel": "bold red"}


def show(matrix: Matrix) -> None:
    """Print a matrix: as a table, or for one wheel and one target as a report."""
    if _own_error(matrix):
        return  # it is what the task ends with
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
        drawn.add_row(
            *(Text(console.readable(one), _STYLES.get(one.partition(" (")[0], "")) for one in row)
        )
    return drawn


def error_of(matrix: Matrix) -> JetshipError:
    """Return the error of a matrix in which something did not pass; of one wheel, its own."""
    if own := _own_error(matrix):
        return own
    count = len(matrix.subjects)
    said = f"{len(matrix.rejected)} of {count} wheel{'' if count == 1 else 's'} did not pass"
    unknown = all(matrix.outcome(number) == "unknown" for number in matrix.rejected)
    if any(matrix.emulated_alone(number) for number in matrix.rejected):
        said += "; platforms for emulation are no board, and do not count"
    elif unknown:
        said += ", as it cannot be told"
    return CheckError(
        said,
        fix="see the findings; each says what to do, and `invoke check --explain RULE` why it asks",
    )


def _own_error(matrix: Matrix) -> JetshipError | None:
    """Return why the one thing that was to be checked could not be read, if it is so."""
    return matrix.subjects[0].error if len(matrix.subjects) == 1 else None
