"""The program that is sent to devices, run here with a docker command of the tests' own."""

import ast
import json
import os
import signal
import time
from collections.abc import Iterator
from importlib.resources import files

import pytest
from devicesession import APP, Device, Session, back, image, order
from fakeengine import Fault
from jetship.fleet.program import MODULES, PACKAGE, program_source
from jetship.ssh import one_line


@pytest.fixture
def device(tmp_path) -> Iterator[Device]:
    with Device.new(tmp_path / "device") as one:
        yield one


@pytest.fixture
def deployed(device) -> Device:
    """One that has a release, r1."""
    assert device.asked(order(1))[-1]["answer"]["status"] == "committed"
    return device


def the_answer(device: Device, *requests: dict, **quick: str) -> dict:
    answer = device.asked(*requests, **quick)[-1]
    assert device.said == ""
    return answer["answer"]


def the_refusal(device: Device, *requests: dict) -> dict:
    answer = device.asked(*requests)[-1]
    assert "refused" in answer, answer
    return answer


def wait_for(what) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


# --- what is sent ---


def test_it_is_python_3_6():
    for name in (*MODULES, "__init__"):
        text = files(PACKAGE).joinpath(f"{name}.py").read_text()
        ast.parse(text, feature_version=(3, 6))
        imported = {
            alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Import)
            for alias in node.names
        } | {
            str(node.module).partition(".")[0]
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom)
        }
        # All of these are in the standard library of 3.6.
        assert imported <= {
            "base64", "contextlib", "datetime", "errno", "fcntl", "hashlib", "io", "jetship",
            "json", "os", "re", "select", "signal", "subprocess", "sys", "tarfile", "tempfile",
            "threading", "time", "traceback", "typing",
        }, name  # fmt: skip


def test_all_its_modules_are_sent_and_fit_into_a_command_line():
    here = {path.name for path in files(PACKAGE).iterdir() if path.name.endswith(".py")}
    assert {f"{name}.py" for name in MODULES} == here - {"__init__.py"}
    # Linux lets one word of a command line be so long (MAX_ARG_STRLEN).
    assert len(one_line(program_source(), "jetship")) < 1 << 17


# --- a session ---


def test_it_tells_what_the_device_is(device):
    with Session(device) as session:
        facts = session.hello()["answer"]
    assert facts["machine"] == os.uname().machine
    assert facts["memory_bytes"] > 1 << 28
    assert facts["docker"] == "20.10.24"
    assert facts["runtimes"] == ["nvidia", "runc"]
    assert facts["images"] == sorted(image(number) for number in range(1, 5))
    assert abs(facts["clock"] - time.time()) < 60
    assert facts["state"] == {"current": None, "previous": None, "last": None, "unfinished": "",
                              "note": ""}  # fmt: skip


def test_a_second_session_waits_or_is_told(device):
    with Session(device) as first:
        first.hello(who="ann@desk", release="r7")
        with Session(device) as second:
            refused = second.hello(who="bob@desk")
        assert refused["refused"] == "locked"
        holder = refused["holder"]
        assert (holder["who"], holder["release"]) == ("ann@desk", "r7")
        assert holder["since"].startswith("2027-01-15T08:00:")
        patient = Session(device)
        patient.ask(None)
        patient.send({"do": "hello", "app": APP, "state": str(device.folder / "state"),
                      "who": "bob", "release": "r", "wait": 20, "clock": 0})  # fmt: skip
        time.sleep(0.5)
    with patient:
        assert "answer" in patient.ask(None)


@pytest.mark.parametrize("app", ["../up", "App", "", "a/b", "a b"])
def test_a_name_that_is_none_is_refused(device, app):
    with Session(device) as session:
        assert session.hello(app=app)["refused"] == "request"
    assert not (device.folder / "state").exists()


def test_times_are_the_deployers(deployed):
    assert {row["clock"] for row in deployed.journal} == {"deployer"}
    assert all(row["at"].startswith("2027-01-15T08:00:") for row in deployed.journal)
    assert deployed.state["last"]["at"].startswith("2027-01-15T08:00:")


# --- the change ---


def test_the_words_of_the_container(deployed):
    (words,) = [words for words in deployed.engine.calls if words[0] == "create"]
    name = deployed.state["current"]["container"]
    assert name == f"{APP}-000000000001-1"
    settings = {key: order(1)[key] for key in ("create", "command", "health")}
    # The image by its id: an engine pulls a name that it lacks.
    assert words == [
        "create", "--name", name, "--restart", "no",
        "--label", f"jetship.app={APP}", "--label", "jetship.release=r1",
        "--label", f"jetship.image={image(1)}",
        "--label", f"jetship.settings={json.dumps(settings, sort_keys=True)}",
        "--runtime", "nvidia", image(1), "run",
    ]  # fmt: skip


@pytest.mark.parametrize("word", ["--name", "--restart=always", "--rm", "--label=jetship.app=x"])
def test_words_that_are_its_own_are_refused(device, word):
    assert the_refusal(device, order(1, create=[word]))["refused"] == "request"
    assert device.engine.containers == {}


def test_what_is_there_already_is_left_alone(deployed):
    before = deployed.engine.copy()
    assert the_answer(deployed, order(1, release="again"))["status"] == "already"
    assert deployed.engine.containers == before.containers
    # Other words for the same image make another container.
    outcome = the_answer(deployed, order(1, create=["--runtime", "runc"], release="other"))
    assert (outcome["status"], outcome["release"]) == ("committed", "other")
    assert deployed.engine.running == [f"{APP}-000000000001-2"]


def test_of_three_releases_two_are_kept(deployed):
    the_answer(deployed, order(2), order(3))
    assert set(deployed.engine.containers) == {f"{APP}-00000000000{one}-1" for one in (2, 3)}
    own = {name for name in deployed.engine.images if name.startswith("jetship.device/")}
    assert own == {f"jetship.device/{APP}:00000000000{one}" for one in (2, 3)}
    assert image(1) in deployed.engine.images, "a name of somebody else's is not ours to remove"


BEHAVIOURS = {
    "does not start": "could not select device driver",
    "ends at once": "the container stopped with exit status 3",
    "dies when asked": "the container stopped with exit status 3",
    "wrong answer": "the self test does not say that all is well",
    "never healthy": "the health command did not succeed within 0 s",
}


@pytest.mark.parametrize("mode", ["replace", "beside"])
@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_a_sick_one_is_taken_back(deployed, behaviour, mode):
    deployed.engine.behaviours[image(2)] = behaviour
    request = order(2, mode=mode)
    request["health"] |= {"timeout": 0.3}
    outcome = the_answer(deployed, request)
    assert outcome["status"] == "rolled-back"
    assert BEHAVIOURS[behaviour] in outcome["reason"]
    assert outcome["logs"] == "the container's last words"
    assert outcome["release"] == "r1"
    assert deployed.engine.running == [f"{APP}-000000000001-1"]
    assert set(deployed.engine.containers) == {f"{APP}-000000000001-1"}


def test_one_that_is_healthy_later_is_waited_for(deployed):
    deployed.engine.behaviours[image(2)] = "healthy later"
    request = order(2)
    request["health"] |= {"timeout": 20}
    assert the_answer(deployed, request)["status"] == "committed"


def test_a_self_test_alone_or_nothing_is_enough(device):
    request = order(1)
    request["health"] |= {"selftest": [], "command": []}
    assert the_answer(device, request)["status"] == "committed"
    assert not [words for words in device.engine.calls if words[0] == "exec"]


def test_there_is_no_way_back_from_the_first(deployed):
    refused = the_refusal(deployed, back())
    assert (refused["refused"], refused["what"]) == (
        "previous", "there is no previous release on this device",
    )  # fmt: skip


def test_the_way_back_takes_the_very_container(deployed):
    the_answer(deployed, order(2))
    assert the_refusal(deployed, back(to="r7"))["refused"] == "previous"
    made = len([words for words in deployed.engine.calls if words[0] == "create"])
    assert the_answer(deployed, back(to="r1"))["release"] == "r1"
    assert len([words for words in deployed.engine.calls if words[0] == "create"]) == made
    assert deployed.state["previous"]["release"] == "r2"


def test_the_way_back_makes_a_container_that_is_gone_anew(deployed):
    the_answer(deployed, order(2))
    del deployed.engine.containers[f"{APP}-000000000001-1"]
    assert the_answer(deployed, back())["release"] == "r1"
    (name,) = deployed.engine.running
    assert deployed.engine.containers[name].labels[1] == "jetship.release=r1"


def test_a_way_back_that_fails_keeps_both(deployed):
    the_answer(deployed, order(2))
    deployed.engine.behaviours[image(1)] = "does not start"
    outcome = the_answer(deployed, back())
    assert (outcome["status"], outcome["release"]) == ("rolled-back", "r2")
    assert set(deployed.engine.containers) == {f"{APP}-00000000000{one}-1" for one in (1, 2)}
    assert deployed.state["previous"]["release"] == "r1"


def test_where_even_the_old_one_does_not_start(deployed):
    deployed.engine.behaviours[image(2)] = "never healthy"
    deployed.engine.behaviours[image(1)] = "does not start"
    request = order(2, patience=0.5)
    request["health"] |= {"timeout": 0.1}
    outcome = the_answer(deployed, request)
    assert outcome["status"] == "broken"
    assert "did not succeed within" in outcome["reason"]
    assert "could not select device driver" in outcome["reason"]
    assert deployed.state["last"]["outcome"] == "broken"
    # The next session tries again.
    deployed.engine.behaviours.clear()
    assert device_state(deployed)["last"]["outcome"] == "rolled-back"
    assert deployed.engine.running == [f"{APP}-000000000001-1"]


def device_state(device: Device) -> dict:
    with Session(device) as session:
        return session.hello()["answer"]["state"]


def test_an_engine_that_stays_away(deployed):
    """It is away from the start of the new container on, longer than anybody waits."""
    calls = len(deployed.engine.calls)
    with Session(deployed) as session:
        session.hello()
        deployed.engine.calls.clear()
        deployed.engine.fault = Fault(10, "away", after=False)
        session.send(order(2, patience=0.3))
        wait_for(lambda: len(deployed.engine.calls) >= 10)
        deployed.engine.away_until = time.monotonic() + 1000
        outcome = session.ask(None)["answer"]
    assert calls
    assert outcome["status"] == "broken"
    assert "the engine does not answer" in outcome["reason"]
    with Session(deployed) as session:
        facts = session.hello()["answer"]
        assert facts["docker"] == ""
        assert facts["state"]["unfinished"]
        assert session.ask(order(3))["refused"] in ("unfinished", "engine")
    deployed.engine.restart()
    deployed.engine.away_until = 0
    assert device_state(deployed)["unfinished"] == ""
    assert deployed.engine.running == [f"{APP}-000000000001-1"]
    assert set(deployed.engine.containers) == {f"{APP}-000000000001-1"}


def test_the_deployer_may_go_away(deployed):
    with Session(deployed) as session:
        session.hello()
        session.send(order(2))
        session.process.stdin.close()
        session.process.stdout.close()
        session.process.wait(30)
        session.process.stdout = open(os.devnull, "rb")  # noqa: PTH123, SIM115
    assert deployed.said == ""
    assert deployed.state["last"]["release"] == "r2"
    assert deployed.engine.running == [f"{APP}-000000000002-1"]


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
def test_signals_of_a_session_that_ends(deployed, number):
    deployed.engine.behaviours[image(2)] = "never healthy"
    request = order(2)
    request["health"] |= {"timeout": 3}
    with Session(deployed) as session:
        session.hello()
        session.send(request)
        wait_for(lambda: f"{APP}-000000000002-1" in deployed.engine.running)
        os.killpg(session.process.pid, number)
        outcome = session.ask(None)["answer"]
    told = "was told to end" in outcome["reason"]
    assert told == (number == signal.SIGTERM)
    assert outcome["status"] == "rolled-back"
    assert deployed.engine.running == [f"{APP}-000000000001-1"]


def test_a_container_of_ours_without_a_state_file_is_taken_over(deployed):
    (deployed.own / "state.json").unlink()
    assert device_state(deployed)["current"]["release"] == "r1"
    assert the_answer(deployed, order(2))["status"] == "committed"
    assert deployed.engine.running == [f"{APP}-000000000002-1"]
    assert the_answer(deployed, back())["status"] == "committed"


def test_a_damaged_state_file_is_moved_aside(deployed):
    (deployed.own / "state.json").write_text('{"schema": 1, "app":')
    assert device_state(deployed)["current"]["release"] == "r1"
    assert (deployed.own / "state.json.damaged").exists()


def test_a_state_file_of_another_version_is_refused(deployed):
    (deployed.own / "state.json").write_text(json.dumps(deployed.state | {"schema": 2}))
    with Session(deployed) as session:
        assert session.hello()["refused"] == "state"


def test_half_a_line_of_the_journal_stays_alone(deployed):
    path = deployed.own / "journal.jsonl"
    path.write_bytes(path.read_bytes() + b'{"event": "beg')
    the_answer(deployed, order(2))
    lines = path.read_text().splitlines()
    (torn,) = [line for line in lines if line.startswith('{"event": "beg') and "}" not in line]
    assert torn == '{"event": "beg'
    assert json.loads(lines[-1])["outcome"] == "committed"


def test_an_image_that_is_not_there_is_refused(deployed):
    assert the_refusal(deployed, order(9))["refused"] == "image"
    assert deployed.state["swap"] is None


# --- what people do by hand ---


@pytest.fixture
def twice(deployed) -> Device:
    """One that has r2, and had r1 before."""
    the_answer(deployed, order(2))
    return deployed


def forget_settings(device: Device, which: str) -> None:
    """Leave the state as it is where a container was adopted that does not tell of its words."""
    state = device.state
    state[which]["settings"] = None
    (device.own / "state.json").write_text(json.dumps(state))


def sick(device: Device, number: int) -> dict:
    device.engine.behaviours[image(number)] = "ends at once"
    return order(number, patience=120)


def test_a_removed_container_is_made_again_where_the_new_one_is_sick(twice):
    del twice.engine.containers[f"{APP}-000000000002-1"]
    outcome = the_answer(twice, sick(twice, 3))
    assert (outcome["status"], outcome["release"]) == ("rolled-back", "r2")
    assert twice.engine.running == [twice.state["current"]["container"]]
    assert twice.state["previous"]["release"] == "r1"


def test_what_cannot_be_made_again_gives_way_to_what_was_before(twice):
    del twice.engine.containers[f"{APP}-000000000002-1"]
    forget_settings(twice, "current")
    outcome = the_answer(twice, sick(twice, 3))
    assert (outcome["status"], outcome["release"]) == ("rolled-back", "r1")
    assert "is gone; so it runs r1" in outcome["reason"]
    assert outcome["seconds"] < 60, "it waits for what never comes"
    assert twice.engine.running == [f"{APP}-000000000001-1"]
    assert twice.engine.containers[f"{APP}-000000000001-1"].restart == "always"
    assert (twice.state["previous"], twice.state["swap"]) == (None, None)
    assert the_answer(twice, order(4))["status"] == "committed"
    assert twice.state["previous"]["release"] == "r1"


def test_nothing_left_to_go_back_to_is_broken_until_the_next_deploy(deployed):
    deployed.engine.containers.clear()
    for name in [name for name, one in deployed.engine.images.items() if one == image(1)]:
        del deployed.engine.images[name]
    outcome = the_answer(deployed, sick(deployed, 2))
    assert outcome["status"] == "broken"
    assert "its image is no longer on the device" in outcome["reason"]
    assert outcome["seconds"] < 60
    assert device_state(deployed)["unfinished"] == ""
    assert the_answer(deployed, order(3))["status"] == "committed"
    assert deployed.state["previous"] is None


def test_a_good_release_supersedes_what_could_not_be_ended(deployed):
    deployed.engine.behaviours[image(1)] = "does not start"
    assert the_answer(deployed, sick(deployed, 2) | {"patience": 0.3})["status"] == "broken"
    assert deployed.state["swap"]
    quick = {"RECOVERY_PATIENCE_SECONDS = 30.0": "RECOVERY_PATIENCE_SECONDS = 0.3"}
    assert the_answer(deployed, order(3), **quick)["status"] == "committed"
    assert deployed.engine.running == [f"{APP}-000000000003-1"]
    assert deployed.state["swap"] is None


@pytest.mark.parametrize("how", ["removed", "stopped"])
def test_the_present_release_made_anew_keeps_the_previous_one(twice, how):
    name = f"{APP}-000000000002-1"
    if how == "removed":
        del twice.engine.containers[name]
    else:
        twice.engine.containers[name].running = False
    assert the_answer(twice, order(2, release="again"))["status"] == "committed"
    assert twice.state["previous"]["release"] == "r1"
    assert f"{APP}-000000000001-1" in twice.engine.containers
    assert len(twice.engine.containers) == 2
    outcome = the_answer(twice, back())
    assert (outcome["status"], outcome["release"]) == ("committed", "r1")
    assert twice.state["previous"]["release"] == "again"


def test_a_previous_image_that_was_deleted_is_never_pulled(twice):
    del twice.engine.containers[f"{APP}-000000000001-1"]
    for name in [name for name, one in twice.engine.images.items() if one == image(1)]:
        del twice.engine.images[name]
    made = len([words for words in twice.engine.calls if words[0] == "create"])
    refused = the_refusal(twice, back())
    assert refused["refused"] == "image"
    assert refused["what"] == "the image of its previous release is no longer on the device"
    assert len([words for words in twice.engine.calls if words[0] == "create"]) == made
    assert twice.engine.running == [f"{APP}-000000000002-1"]


def test_an_image_that_only_lost_our_name_is_found(twice):
    del twice.engine.containers[f"{APP}-000000000001-1"]
    del twice.engine.images[f"jetship.device/{APP}:000000000001"]
    assert the_answer(twice, back())["release"] == "r1"
    assert f"jetship.device/{APP}:000000000001" in twice.engine.images


def test_the_release_that_runs_is_none_to_go_back_to(twice):
    state = twice.state
    state["previous"] = dict(state["current"], container=f"{APP}-000000000002-9")
    (twice.own / "state.json").write_text(json.dumps(state))
    assert "the one that it has now" in the_refusal(twice, back())["what"]


def test_what_the_engine_says_is_one_line(deployed):
    deployed.engine.behaviours[image(2)] = "does not start"
    assert "\n" not in the_answer(deployed, order(2))["reason"]


@pytest.mark.parametrize("what", ["state.json", "all", "damaged"])
def test_what_there_was_before_is_found_without_the_state_file(twice, what):
    if what == "damaged":
        (twice.own / "state.json").write_text('{"schema": 1, "app":')
    else:
        for path in [
            twice.own / "state.json",
            *(twice.own.glob("*.jsonl") if what == "all" else ()),
        ]:
            path.unlink()
    told = device_state(twice)
    assert (told["current"]["release"], told["previous"]["release"]) == ("r2", "r1")
    kept = "damaged (kept as state.json.damaged)" if what == "damaged" else "lost"
    assert told["note"] == f"its state file was {kept}; its containers tell what it has"
    assert device_state(twice)["note"] == told["note"]
    # All of which they are made is known, too.
    assert twice.state["current"]["settings"] == {
        key: order(2)[key] for key in ("create", "command", "health")
    }
    outcome = the_answer(twice, back())
    assert (outcome["status"], outcome["release"]) == ("committed", "r1")
    assert twice.state["previous"]["release"] == "r2"
    assert device_state(twice)["note"] == ""


def test_what_is_not_known_any_more_is_told(deployed):
    (deployed.own / "state.json").unlink()
    assert device_state(deployed)["note"].endswith("what it had before is not known")
    (deployed.own / "state.json").unlink()
    deployed.engine.containers.clear()
    told = device_state(deployed)
    assert told["current"] is None
    assert told["note"] == "its state file was lost; what it had before is not known"


def test_one_that_was_never_committed_is_not_what_there_was_before(deployed):
    """The power goes while the second one is tested, and the state file with it."""
    deployed.engine.behaviours[image(2)] = "never healthy"
    with Session(deployed) as session:
        session.hello()
        request = order(2, patience=0.1)
        request["health"] |= {"timeout": 20}
        session.send(request)
        wait_for(lambda: f"{APP}-000000000002-1" in deployed.engine.running)
        deployed.engine.away_until = time.monotonic() + 1000
        session.ask(None)
    deployed.engine.away_until = 0
    deployed.engine.restart()
    (deployed.own / "state.json").unlink()
    assert len(deployed.engine.containers) == 2
    told = device_state(deployed)
    assert (told["current"]["release"], told["previous"]) == ("r1", None)


def looked(device: Device) -> dict:
    with Session(device) as session:
        return session.hello(look=True)["answer"]


def test_who_only_looks_changes_nothing(deployed):
    deployed.engine.behaviours |= {image(1): "does not start", image(2): "ends at once"}
    assert the_answer(deployed, order(2, patience=0.3))["status"] == "broken"
    deployed.engine.behaviours.clear()
    files, containers = contents(deployed), deployed.engine.copy().containers
    told = looked(deployed)
    assert told["state"]["unfinished"]
    assert told["container"] == "exited"
    assert (contents(deployed), deployed.engine.containers) == (files, containers)
    device_state(deployed)
    assert deployed.engine.running == [f"{APP}-000000000001-1"]


@pytest.mark.parametrize("left", ["", "{"])
def test_who_only_looks_sees_what_was_lost_and_leaves_it(twice, left):
    path = twice.own / "state.json"
    path.write_text(left) if left else path.unlink()
    files = contents(twice)
    told = looked(twice)
    assert told["state"]["previous"]["release"] == "r1"
    assert told["container"] == "running"
    assert ("damaged" if left else "lost") in told["state"]["note"]
    assert contents(twice) == files


def contents(device: Device) -> dict[str, bytes]:
    files = [path for path in device.own.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): path.read_bytes() for path in files}
