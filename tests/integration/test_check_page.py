"""The page of a check in a real browser: clicks, keys, filter, and wheels that mean harm."""

import zipfile
from pathlib import Path

import pytest
from browser import Page, browser
from jetship.build.wheelfile import Member, Wheel
from product import invoke

EVIL = "<img src=x onerror=document.title='harmed'><script>document.title='harmed'<.so"


@pytest.fixture(scope="module")
def written(kernel_wheel, tmp_path_factory) -> Path:
    """The page about a good wheel and one that holds a file with HTML for a name."""
    folder = tmp_path_factory.mktemp("page")
    wheel = Wheel.read(kernel_wheel)
    wheel.members[EVIL] = Member(b"no library")
    evil = wheel.write(folder)
    done = invoke(
        "check", kernel_wheel, evil, "--target", "sm62-debian-12,sm72-debian-12,sm87-debian-12",
        "--html", folder / "check.html",
    )  # fmt: skip
    done.one_error(7)
    with zipfile.ZipFile(evil) as opened:
        assert EVIL in opened.namelist()
    return folder / "check.html"


@pytest.fixture(scope="module")
def chromium():
    with browser() as page:
        yield page


@pytest.fixture
def page(chromium, written) -> Page:
    chromium.events.clear()
    chromium.open(Path("/dev/null"))
    chromium.open(written)
    return chromium


def test_a_click_opens_the_reasons_of_that_cell_alone(page):
    assert page.shown(".reasons") == []
    page.click("td[data-column='0'] a.cell.fail")
    (text,) = page.shown(".reasons")
    assert "device-code" in text
    assert "no machine code for 7.2" in text
    assert page.ask("document.activeElement.className").startswith("reasons")
    assert page.shown(".placeholder") == []


def test_keys_reach_every_cell_and_open_and_close_its_reasons(page):
    page.ask("document.querySelector('a.cell[tabindex=\"0\"]').focus()")
    page.press("ArrowDown")
    page.press("Enter")
    (text,) = page.shown(".reasons")
    assert "sm72-debian-12" in text
    page.press("Escape")
    assert page.shown(".reasons") == []
    assert "sm72-debian-12" in page.ask("document.activeElement.getAttribute('aria-label')")


def test_the_filter_keeps_what_has_the_words(page):
    assert len(page.shown("#matrix tbody tr:not(.group)")) == 3
    page.ask("document.getElementById('filter').focus()")
    page.write("sm72")
    assert len(page.shown("#matrix tbody tr:not(.group)")) == 1
    page.write(" nonsense")
    assert page.shown("#nothing") == ["Nothing matches the filter."]


def test_a_rule_explains_itself(page):
    page.click("td[data-column='0'] a.cell.fail")
    page.click(".reasons:target .finding button.rule")
    (text,) = page.shown(".explanation")
    assert "no kernel image is available" in text


def test_names_in_a_wheel_are_text(page):
    page.click("td[data-column='1'] a.cell.fail")
    (text,) = page.shown(".reasons")
    assert EVIL in text
    assert page.ask("document.title") != "harmed"
    assert page.ask("document.images.length") == 0
    assert page.ask("document.scripts.length") == 1


def test_the_page_asks_nothing_of_anybody(page):
    asked = [
        event["params"]["request"]["url"]
        for event in page.events
        if event.get("method") == "Network.requestWillBeSent"
    ]
    assert all(url.startswith("file://") for url in asked)
    assert not [event for event in page.events if event.get("method") == "Log.entryAdded"]


def test_a_script_that_got_into_the_page_would_not_run(chromium, written, tmp_path):
    text = written.read_text()
    bad = tmp_path / "bad.html"
    bad.write_text(text.replace("</main>", "<script>document.title='harmed'</script></main>"))
    chromium.open(bad)
    assert chromium.ask("document.title") != "harmed"
    assert chromium.ask("document.scripts.length") == 2


def test_without_scripts_the_cells_still_open(chromium, written):
    chromium.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        chromium.open(Path("/dev/null"))
        chromium.open(written)
        chromium.click("a.cell.fail")
        assert len(chromium.shown(".reasons")) == 1
    finally:
        chromium.call("Emulation.setScriptExecutionDisabled", value=False)
