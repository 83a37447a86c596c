"""What each rule asks and why: explanations.yaml, for people who meet a finding."""

import difflib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.yamlfile import Strict

ALL = "all"


class Explanation(Strict):
    """One rule in words: what it asks, what goes wrong without, how it is found out."""

    question: str
    why: str
    how: str
    fix: str
    source: str


class _Explanations(Strict):
    rules: dict[str, Explanation]


@functools.cache
def explanations() -> Mapping[str, Explanation]:
    """Return the explanations by the name of their rule.

    Raises:
        ConfigError: the file is wrong.
    """
    return yamlfile.load(Path(__file__).with_name("explanations.yaml"), _Explanations).rules


def explained(name: str) -> Mapping[str, Explanation]:
    """Return the explanation of one rule, or of all of them.

    Raises:
        ConfigError: there is no such rule; names the nearest and all.
    """
    known = explanations()
    if name == ALL:
        return known
    plain = name.strip().lower().replace("_", "-")
    if plain not in known:
        close = difflib.get_close_matches(plain, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise ConfigError(
            f"{name!r} is no rule of the check", fix=f"{hint}rules: {', '.join(known)}, or {ALL}"
        )
    return {plain: known[plain]}


def as_text(rules: Mapping[str, Explanation]) -> Iterator[str]:
    """Yield each rule's explanation, as text."""
    for name, rule in rules.items():
        yield "\n".join(
            [
                f"{name}: {rule.question}",
                f"  why:    {rule.why}",
                f"  how:    {rule.how}",
                f"  fix:    {rule.fix}",
                f"  source: {rule.source}",
            ]
        )
