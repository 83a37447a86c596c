"""Nothing unproved goes out, and what is proved is not asked again."""

import pytest
from fakefleet import CATALOG, IMAGE, TARGET
from jetship.check.findings import Finding, Report
from jetship.check.matrix import Column, Matrix, Subject
from jetship.errors import CheckError
from jetship.fleet import proof as module
from jetship.fleet.proof import require_proved
from jetship.toolchain.ownparts import NO_SUPPLY


@pytest.fixture
def checks(monkeypatch):
    """Let checks end as told; returns what was asked."""
    asked = []

    def install(outcome: str) -> None:
        report = Report("ops", "0" * 64, TARGET.id, (Finding("pin", outcome, "ops", "so"),))
        subject = Subject("ops", "ops", "installed", "named")

        class Survey:
            def __init__(self, *_) -> None: ...

            def run(self, inputs, _question):
                asked.append(inputs)
                return Matrix((subject,), (Column(TARGET),), {(0, 0): report})

        monkeypatch.setattr(module, "Survey", Survey)
        monkeypatch.setattr(module, "inputs_of", lambda words, *_: words)

    install.asked = asked
    return install


def test_what_is_in_an_image_is_checked_once(store, checks):
    checks("pass")
    for _ in range(2):
        require_proved(IMAGE, TARGET, CATALOG, store, NO_SUPPLY)
    assert checks.asked == [[IMAGE.id]]


@pytest.mark.parametrize("outcome", ["fail", "unknown"])
def test_what_did_not_pass_goes_nowhere_and_is_checked_again(store, checks, outcome):
    checks(outcome)
    for _ in range(2):
        with pytest.raises(CheckError, match="acme/ops:2 is refused"):
            require_proved(IMAGE, TARGET, CATALOG, store, NO_SUPPLY)
    assert len(checks.asked) == 2
