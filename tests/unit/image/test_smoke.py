"""What is said of a smoke command; the run itself is tried with a real engine."""

import pytest
from jetship.errors import ImageError
from jetship.image.smoke import _answer, _Run

PROGRAM = "import json\nprint(json.dumps({'ok': True}))\n" * 20


@pytest.mark.parametrize(
    ("status", "expired", "said"),
    [
        (1, False, "ended with exit status 1"),
        (0, False, "did not print a JSON object"),
        (137, True, "did not end within 5 seconds"),
    ],
)
def test_a_program_of_many_lines_is_named_on_one(status, expired, said):
    run = _Run(None, 5.0)
    run.expired = expired
    with pytest.raises(ImageError, match=said) as caught:
        _answer(status, run, ["python3", "-c", PROGRAM])
    assert "\n" not in caught.value.what
    assert caught.value.what.startswith("the smoke command `python3 -c import json print(")
    assert len(caught.value.what) < 200
