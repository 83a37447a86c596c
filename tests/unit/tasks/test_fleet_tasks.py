"""The command lines of `deploy`, `status` and `rollback`, over devices without a network."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "fleet"))

from fakefleet import CATALOG, IMAGE, LAYERS, OLD, FakeDevice, FakeFleet
from jetship import console
from jetship.errors import ImageError, NothingSelectedError, ToolMissingError
from jetship.fleet import journal, planning, proof, running, tables
from jetship.fleet.alone import alone
from jetship.fleet.plan import Plan
from rich.console import Console

DEPLOY = """\
targets: [{arch: 8.7, platform: jetpack-6.2}]
image: {repository: acme/ops, smoke: [selftest]}
health: {command: [healthy], settle: 1}
fleet:
  defaults: {user: ops, board: orin}
  devices:
    - {name: d0, host: d0, groups: [lab]}
    - {name: d1, host: d1}
    - {name: d2, host: d2}
strategy: {canary: 1, wave: 2}
"""


@pytest.fixture
def devices(tmp_path, monkeypatch) -> dict[str, FakeDevice]:
    """Three devices of a deploy.yaml in the current folder, and an image for them."""
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    monkeypatch.chdir(tmp_path)
    members = FakeFleet.of(tmp_path, 3).members

    def open_link(login, *, app, release="", state="", look):
        assert (app, state, login.address.user) == ("acme-ops", "", "ops")
        return members[login.address.host].open()

    monkeypatch.setattr(running, "open_link", open_link)
    for module in (planning, running):
        monkeypatch.setattr(module, "connect", lambda: open("/dev/null"))  # noqa: PTH123, SIM115
    monkeypatch.setattr(running, "layered_image", lambda *_: LAYERS)
    monkeypatch.setattr(planning, "pin_image", lambda *_, **__: IMAGE)
    monkeypatch.setattr(proof, "require_proved", lambda *_: None)
    return members


def release(found: str) -> str:
    return json.loads(found)["release"]


def test_a_dry_rollout_shows_who_gets_what_and_asks_nobody(call, devices):
    code, out, _ = call("deploy", "--dry")
    assert code == 0
    lines = [line.split() for line in out.splitlines()]
    assert [line[:2] for line in lines] == [
        ["wave", "device"], ["canary", "d0"], ["1", "d1"], ["1", "d2"],
    ]  # fmt: skip
    assert lines[1][2:] == ["ops@d0", "orin", "sm87-jetpack-6.2", "acme/ops:2"]
    assert not any(device.sessions for device in devices.values())
    assert not Path(".jetship").exists()
    _, out, _ = call("deploy", "--dry", "--json")
    plan = Plan.from_json(json.loads(out)["plan"])
    (setup,) = plan.setups
    assert setup.runtime == "nvidia"
    assert plan.health.selftest == ("selftest",)


def test_a_dry_rollout_that_cannot_start_is_planned_and_fails_as_it_would(
    call, devices, monkeypatch
):
    def none(*_: object, **__: object) -> None:
        raise ToolMissingError("no engine", fix="start it")

    monkeypatch.setattr(planning, "connect", none)
    code, out, err = call("deploy", "--dry")
    assert (code, len(out.splitlines())) == (4, 4)
    assert "the rollout cannot start: there is no image for sm87-jetpack-6.2" in err
    assert "why: sm87-jetpack-6.2: no engine\n  fix: start it" in err

    def typo(*_: object, wanted: str, **__: object) -> None:
        raise NothingSelectedError(f"no image {wanted}", why="it has 1.0", fix="name it")

    monkeypatch.setattr(planning, "connect", lambda: open("/dev/null"))  # noqa: PTH123, SIM115
    monkeypatch.setattr(planning, "pin_image", typo)
    code, out, _ = call("deploy", "--dry", "--image", "9.9", "--json")
    assert (code, json.loads(out)["lacking"]) == (3, {"sm87-jetpack-6.2": "no image 9.9; name it"})


def test_a_rollout_says_what_it_did_and_again_does_nothing(call, devices):
    code, out, err = call("deploy")
    assert (code, out) == (0, "")
    assert "==> canary: 1 device" in err
    assert "==> wave 1: 2 devices" in err
    assert "3 of 3 devices have the image" in err
    code, out, _ = call("deploy", "--json")
    document = json.loads(out)
    assert (code, document["outcome"], document["stopped"]) == (0, "complete", None)
    assert [row["result"] for row in document["devices"]] == ["already"] * 3
    assert document["devices"][0]["image_id"] == IMAGE.id
    assert [device.swaps for device in devices.values()] == [1, 1, 1]


def test_a_part_of_the_fleet(call, devices):
    assert call("deploy", "--group", "lab")[0] == 0
    assert [device.swaps for device in devices.values()] == [1, 0, 0]
    assert call("deploy", "--device", "d1,d0")[0] == 0
    assert [device.swaps for device in devices.values()] == [1, 1, 0]
    code, _, err = call("deploy", "--group", "lap")
    assert (code, "did you mean 'lab'?" in err) == (3, True)
    assert call("status", "--device", "d7")[0] == 3


def test_a_partial_rollout_has_its_code_and_its_list(call, devices):
    devices["d1"].fails = "rolled-back"
    code, out, err = call("deploy")
    assert (code, out) == (9, "")
    assert "error: rollout" in err
    assert "have the image\n  why: it was stopped: 1 device has failed" in err
    assert "d1 rolled-back: rolled-back" in err
    assert "        | log" in err
    devices["d0"].unreachable = True
    code, out, err = call("deploy", "--json")
    document = json.loads(out)
    assert (code, document["outcome"]) == (9, "partial")
    results = {row["name"]: row["result"] for row in document["devices"]}
    assert results["d0"] == "unreachable"
    assert results["d1"] == "not begun"


def test_each_way_of_failing_says_what_can_be_done_about_it(call, devices):
    devices["d0"].unreachable = True
    devices["d1"].fails = "broken"
    Path("deploy.yaml").write_text(DEPLOY.replace("canary: 1", "canary: 0, max_failures: 1"))
    code, _, err = call("deploy")
    fix = err.split("  fix: ")[1]
    assert code == 9
    assert "d0: was not reached: mend the way to it, then run it again" in fix
    assert "d1: runs nothing, and running this again may not help" in fix
    assert "--to RELEASE --device d1" in fix
    assert "runs the old image" not in fix
    (devices["d0"].unreachable, devices["d1"].fails) = (False, "")
    code, _, err = call("rollback", "--device", "d0")
    assert (code, "0 of 1 device has what it had before" in err) == (9, True)
    fix = err.split("  fix: ")[1]
    assert "d0: has not what it should go back to, and running this again does not help" in fix
    assert "--to RELEASE --device d0" in fix


def test_an_interrupted_rollout_goes_on(call, devices):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    devices["d1"].ran = interrupt
    code, _, err = call("deploy")
    assert code == 130
    assert "`invoke deploy --resume` goes on" in err
    devices["d1"].ran = lambda *_: None
    (path,) = journal.journals(Path(".jetship/rollouts"))
    # The plan is in the journal.
    Path("deploy.yaml").write_text(DEPLOY.replace("host: d1", "host: d7"))
    code, out, _ = call("deploy", "--resume", "--json")
    assert (code, release(out)) == (0, path.stem)
    assert [device.swaps for device in devices.values()] == [1, 1, 1]
    code, _, err = call("deploy", "--resume")
    assert (code, "has ended (complete)" in err) == (3, True)


def test_a_new_rollout_says_that_a_former_one_did_not_end(call, devices):
    Path("deploy.yaml").write_text(DEPLOY.replace("wave: 2", "wave: 2, pause: confirm"))
    call("deploy")
    Path("deploy.yaml").write_text(DEPLOY)
    code, _, err = call("deploy")
    assert (code, "did not end, and cannot go on any more" in err) == (0, True)
    assert "did not end" not in call("deploy")[2]


def test_what_a_resume_has_answered_already_cannot_be_said(call, devices):
    code, _, err = call("deploy", "--resume", "--group", "lab", "--image", "1.0")
    assert (code, "--group and --image would change it" in err) == (2, True)


def test_what_a_resume_would_do_is_shown_and_not_done(call, devices):
    assert call("deploy", "--resume", "--dry")[0] == 3
    Path("deploy.yaml").write_text(DEPLOY.replace("wave: 2", "wave: 2, pause: confirm"))
    call("deploy")
    before = journal.journals(Path(".jetship/rollouts"))[0].read_bytes()
    sessions = [device.sessions for device in devices.values()]
    code, out, _ = call("deploy", "--resume", "--dry")
    assert code == 0
    lines = out.splitlines()
    assert lines[1].startswith("canary  d0")
    assert lines[1].endswith("leaves it: committed")
    assert lines[2].startswith("1       d1")
    assert lines[2].endswith("begins with it")
    assert [device.sessions for device in devices.values()] == sessions
    assert journal.journals(Path(".jetship/rollouts"))[0].read_bytes() == before
    _, out, _ = call("deploy", "--resume", "--dry", "--json")
    assert json.loads(out)["so_far"]["devices"][2]["result"] == "not begun"


def test_a_dry_rollback_shows_who_would_go_back_and_asks_nobody(call, devices):
    _, out, _ = call("deploy", "--json")
    former = release(out)
    sessions = [device.sessions for device in devices.values()]
    code, out, _ = call("rollback", "--dry", "--device", "d1")
    assert (code, len(out.splitlines())) == (0, 2)
    assert out.splitlines()[1].startswith("1     d1")
    assert out.splitlines()[1].endswith("what it had before")
    code, out, _ = call("rollback", "--dry", "--to", former)
    assert (code, out.count("acme/ops:2")) == (0, 3)
    assert [device.sessions for device in devices.values()] == sessions
    assert len(journal.journals(Path(".jetship/rollouts"))) == 1


def test_the_first_wave_is_wave_1_without_canaries_too(call, devices):
    Path("deploy.yaml").write_text(DEPLOY.replace("canary: 1", "canary: 0"))
    assert [row.split()[0] for row in call("deploy", "--dry")[1].splitlines()[1:]] == [*"112"]
    _, out, err = call("deploy", "--json")
    assert "==> wave 1: 2 devices" in err
    assert "==> wave 2: 1 device" in err
    assert [row["wave"] for row in json.loads(out)["devices"]] == [1, 1, 2]


def test_a_wave_that_nobody_confirms_waits(call, devices):
    Path("deploy.yaml").write_text(DEPLOY.replace("wave: 2", "wave: 2, pause: confirm"))
    code, _, err = call("deploy")
    assert (code, "1 of 3 devices have the image; wave 1 waits" in err) == (9, True)
    assert "why: `pause: confirm` asks before each wave, and there is no terminal to ask on" in err
    assert call("deploy", "--resume")[0] == 0


def test_two_deployers_on_one_machine(call, devices):
    with alone(Path(".jetship/rollouts")):
        for words in (["deploy"], ["deploy", "--resume"], ["rollback"]):
            code, _, err = call(*words)
            assert (code, "is under way on this machine" in err) == (9, True)
        assert call("status")[0] == 0
    assert not any(device.swaps for device in devices.values())


def test_an_image_that_is_not_proved_goes_nowhere(call, devices, monkeypatch):
    def refuse(*_: object) -> None:
        raise ImageError("not proved", fix="mend it")

    monkeypatch.setattr(proof, "require_proved", refuse)
    assert call("deploy")[0] == 8
    assert not any(device.sessions for device in devices.values())
    assert not journal.journals(Path(".jetship/rollouts"))


def test_status_shows_what_each_device_runs(call, devices, monkeypatch):
    call("deploy", "--device", "d0")
    devices["d1"].unreachable = True
    devices["d2"].holder = "eve@laptop"
    for module in (planning, running):
        monkeypatch.setattr(module, "connect", lambda: pytest.fail("status needs no engine"))
    code, out, err = call("status")
    assert code == 9
    assert "1 of 3 devices does not run what was rolled out, or cannot tell" in err
    rows = [line.split(maxsplit=8) for line in out.splitlines()[1:]]
    assert rows[0][:4] == ["d0", "ops@d0", "orin", "r36.4.3"]
    assert rows[0][5:7] == ["acme/ops:2", "running"]
    assert "d1 cannot be reached" in out
    assert "eve@laptop works on it for 20260101T000000Z since 2026-01-01" in out
    _, out, _ = call("status", "--json")
    first, second, third = json.loads(out)["devices"]
    assert first["current"]["image"] == IMAGE.id
    assert first["previous"]["image"] == OLD
    assert (second["reached"], third["reached"]) == (False, False)
    # One that somebody works on is none that does not work.
    assert call("status", "--device", "d0,d2")[0] == 0


def test_a_terminal_shows_the_state_as_it_comes(call, devices, monkeypatch):
    call("deploy")
    monkeypatch.setattr(console, "stdout", Console(force_terminal=True, width=200))
    code, out, _ = call("status")
    assert code == 0
    assert out.count("running") >= 3


def test_status_has_the_digits_of_an_image_that_was_rolled_out_elsewhere(call, devices):
    code, out, _ = call("status", "--device", "d0")
    assert (code, out.splitlines()[1].split()[5]) == (0, "0" * 12)
    call("deploy", "--device", "d0")
    (path,) = journal.journals(Path(".jetship/rollouts"))
    path.write_text("damaged\n")
    _, out, _ = call("status", "--device", "d0", "--json")
    assert json.loads(out)["devices"][0]["image_name"] is None
    path.unlink()
    assert call("status", "--device", "d0")[1].splitlines()[1].split()[5] == "1" * 12


def test_watching_needs_somebody_who_watches(call, devices):
    assert call("status", "--watch")[0] == 2


def test_a_watched_status_ends_with_ctrl_c(call, devices, monkeypatch):
    def enough(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(console, "stdout", Console(force_terminal=True, width=200))
    monkeypatch.setattr(tables.time, "sleep", enough)
    code, out, _ = call("status", "--watch")
    assert code == 0
    assert "running" in out


def test_what_is_no_release_is_refused_before_anything_begins(call, devices):
    for to in ("nope", "20261130", "1.0", "../20261130T081500Z"):
        code, _, err = call("rollback", "--to", to)
        assert (code, "is not a release" in err, "20261130T081500Z" in err) == (2, True, True)
    assert not journal.journals(Path(".jetship/rollouts"))
    assert not any(device.sessions for device in devices.values())


def test_a_release_may_be_named_as_status_shows_it(call, devices):
    call("deploy", "--device", "d0")
    shown = devices["d0"].facts.state.current.release
    call("rollback", "--device", "d0")
    assert call("rollback", "--to", shown, "--device", "d0")[0] == 0
    assert devices["d0"].facts.state.current.image == IMAGE.id


def test_a_rollout_that_can_no_longer_go_on_says_why(call, devices):
    Path("deploy.yaml").write_text(DEPLOY.replace("wave: 2", "wave: 2, pause: confirm"))
    call("deploy")
    (path,) = journal.journals(Path(".jetship/rollouts"))
    code, _, err = call("rollback", "--device", "d0")
    assert code == 0
    assert f"rollout {path.stem} did not end" in err
    assert "cannot go on any more" in err
    code, _, err = call("deploy", "--resume")
    assert code == 3
    assert f"{path.stem} before it did not end, and cannot go on any more" in err


def test_all_go_back(call, devices):
    call("deploy")
    code, out, _ = call("rollback", "--json")
    document = json.loads(out)
    assert (code, document["action"], document["outcome"]) == (0, "rollback", "complete")
    assert {device.facts.state.current.image for device in devices.values()} == {OLD}
    code, _, err = call("rollback")
    assert code == 0
    assert "already: it went back before" in err


def test_the_images_of_a_former_rollout_go_out_again(call, devices):
    _, out, _ = call("deploy", "--json")
    former = release(out)
    call("rollback")
    code, out, _ = call("rollback", "--to", former, "--device", "d0,d1", "--json")
    document = json.loads(out)
    assert (code, document["action"]) == (0, "deploy")
    assert [row["result"] for row in document["devices"]] == ["committed", "committed"]
    assert devices["d2"].facts.state.current.image == OLD


def test_a_rollout_that_is_not_known_here_is_gone_back_to_where_it_was_the_previous_one(
    call, devices
):
    call("deploy", "--device", "d0")
    code, _, err = call("rollback", "--to", "20250101T000000Z")
    assert code == 0
    assert "has no rollout 20250101T000000Z (it has 2" in err
    assert devices["d0"].facts.state.current.image == OLD
    assert "d1: already" in err
    code, _, err = call("rollback", "--to", "19990101T000000Z")
    assert (code, "its previous release is" in err) == (9, True)


def test_going_back_is_no_release_to_go_back_to(call, devices):
    call("deploy")
    _, out, _ = call("rollback", "--json")
    code, _, err = call("rollback", "--to", release(out))
    assert (code, "was going back itself" in err) == (2, True)


@pytest.mark.parametrize("task", ["deploy", "status", "rollback"])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("targets: [{arch: 8.7, platform: jetpack-6.2}]\n", 3),
        (DEPLOY.replace("image:", "# image:"), 2),
        (DEPLOY.replace("host: d1", "hots: d1"), 2),
    ],
)
def test_a_deploy_yaml_that_does_not_do_ends_with_its_code(call, devices, task, text, code):
    Path("deploy.yaml").write_text(text)
    found, _, err = call(task)
    assert found == code
    assert err.startswith("error: ")


def test_a_fleet_of_thousands_is_planned(call, devices):
    rows = "".join(
        f"    - {{name: r{number}, host: r{number}, board: orin}}\n" for number in range(5000)
    )
    text = DEPLOY.replace("    - {name: d0, host: d0, groups: [lab]}\n", rows)
    Path("deploy.yaml").write_text(text.replace("wave: 2", "wave: [1%, 10%]"))
    code, out, _ = call("deploy", "--dry")
    assert (code, len(out.splitlines())) == (0, 5003)
    assert CATALOG.boards
