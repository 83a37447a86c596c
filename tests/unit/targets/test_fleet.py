import json
import time
from pathlib import Path

import pytest
from jetship.errors import ConfigError, NothingSelectedError
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import load_deployment, load_fleet, targets_file_of
from jetship.targets.device import Address

CATALOG = Catalog.load()
HEAD = """\
targets: [{arch: 6.2}, {arch: 8.7}]
image: {repository: acme/ops, smoke: [true]}
fleet:
"""
PLAIN = """\
  defaults: {user: ops, port: 2222, python: /opt/py/bin/python3, state: /data/jetship}
  devices:
    - {name: one, host: 192.0.2.1, board: tx2, labels: {bay: 3}}
    - {name: two, address: me@192.0.2.2, board: orin-nano, groups: [lab]}
    - {name: three, host: "2001:db8::3", user: other, board: agx-orin, python: python3.8}
  groups: {lab: [three], field: [one, three]}
"""


def write(folder, fleet=PLAIN, **files):
    for name, text in files.items():
        (folder / name).write_text(text)
    path = folder / "deploy.yaml"
    path.write_text(HEAD.replace("[true]", '["true"]') + fleet)
    return path


def load(folder, fleet=PLAIN, **files):
    return load_fleet(write(folder, fleet, **files), CATALOG)[1]


def problems(folder, fleet, **files):
    with pytest.raises(ConfigError) as caught:
        load(folder, fleet, **files)
    assert caught.value.fix
    return caught.value.what.replace(f"{folder}/", "")


def test_a_device_has_what_it_says_and_else_the_defaults(tmp_path):
    one, two, three = load(tmp_path).devices
    assert one.address == Address("ops", "192.0.2.1", 2222)
    assert (one.python, one.state) == ("/opt/py/bin/python3", "/data/jetship")
    assert one.labels == {"bay": "3"}
    assert two.address == Address("me", "192.0.2.2", 22), "an address is whole"
    assert three.address == Address("other", "2001:db8::3", 2222)
    assert three.python == "python3.8"
    assert [device.board.name for device in (one, two, three)] == ["tx2", "orin", "orin"]
    assert [str(device.target) for device in (one, two)] == ["sm62-debian-12", "sm87-debian-12"]


def test_groups_are_those_of_the_devices_and_of_the_list(tmp_path):
    fleet = load(tmp_path)
    assert [device.groups for device in fleet.devices] == [("field",), ("lab",), ("lab", "field")]
    assert [d.name for d in fleet.select(groups=["lab"])] == ["two", "three"]
    assert [d.name for d in fleet.select(groups=["lab"], devices=["one"])] == [
        "one",
        "two",
        "three",
    ]
    assert fleet.select() == fleet.devices
    with pytest.raises(
        NothingSelectedError, match=r"no group 'fields'\n  fix: did you mean 'field'"
    ):
        fleet.select(groups=["fields"])
    with pytest.raises(NothingSelectedError, match="no device 'four'"):
        fleet.select(devices=["four"])


def test_files_are_relative_to_what_names_them(tmp_path):
    (tmp_path / "sub").mkdir()
    for name in ("key", "hosts", "sub/key"):
        (tmp_path / name).touch()
    fleet = "  defaults: {user: ops, identity: key, known_hosts: hosts, board: tx2}\n"
    fleet += "  inventory: sub/more.yaml\n  devices: [{name: a, host: a}]\n"
    (tmp_path / "sub/more.yaml").write_text("- {name: b, host: b, identity: key}\n")
    a, b = load(tmp_path, fleet).devices
    assert (a.identity, b.identity) == (tmp_path / "key", tmp_path / "sub/key")
    assert b.known_hosts == tmp_path / "hosts"


@pytest.mark.parametrize(
    ("fleet", "said"),
    [
        ("  devices: [{name: a, host: a, board: tx2}]\n", "4:23: a has no user"),
        ("  devices: [{name: a, address: o@a}]\n", "4:14: a has no board"),
        (
            "  devices: [{name: a, board: tx2}]\n",
            "4:13: fleet.devices.0: a device has an `address:",
        ),
        ("  devices: [{name: a, address: o@a, port: 3}]\n", "`address` says port already"),
        (PLAIN.replace("orin-nano", "orin-nan"), "7:42: board 'orin-nan' is not known; did you"),
        (PLAIN.replace("field: [one", "field: [on"), "9:34: there is no device 'on'; did you mean"),
        (PLAIN.replace("port: 2222", "port: 0"), "4:25: fleet.defaults.port: 0 is less than 1"),
        (PLAIN.replace("state: /data", "state: data"), "fleet.defaults.state: 'data/jetship' does"),
        (PLAIN.replace("user: ops", "user: ops, identity: no"), "4:25: there is no file 'no' here"),
        ("  inventory: no.yaml\n", "4:3: there is no file 'no.yaml' here"),
        (PLAIN.replace("name: two", "name: one"), "7:8: a device named 'one' is there already"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, fleet, said):
    assert said in problems(tmp_path, fleet)


def test_what_the_defaults_say_wrong_is_told_once(tmp_path):
    rows = "".join(f"    - {{name: d{n}, host: h{n}}}\n" for n in range(50))
    said = problems(tmp_path, f"  defaults: {{user: ops, board: tx22}}\n  devices:\n{rows}")
    assert said.startswith("deploy.yaml:4:25: board 'tx22' is not known; did you mean 'tx2'?")
    assert len(said.splitlines()) == 1


def test_problems_of_both_files_come_at_once_each_with_its_own_place(tmp_path):
    fleet = "  defaults: {user: ops}\n  inventory: more.yaml\n"
    fleet += (
        "  devices: [{name: a, host: a, board: tx9}, {name: b, hst: b}]\nstrategy: {canary: 1x}\n"
    )
    more = "- {name: a, host: c, board: tx2}\n- {name: d, board: tx2}\n"
    said = problems(tmp_path, fleet, **{"more.yaml": more}).splitlines()
    assert said[0] == "deploy.yaml has 6 problems"
    assert [line.split(": ")[0].strip() for line in said[1:]] == [
        "deploy.yaml:6:32",
        "deploy.yaml:6:46",
        "deploy.yaml:6:55",
        "deploy.yaml:7:12",
        "more.yaml:1:4",
        "more.yaml:2:3",
    ]


WRONG_ALL_OVER = """\
targets: [{arch: 8.7, colour: red}, {arch: 9.9}, {arch: 6.2, platform: nope, fat: maybe}]
project: nowhere
version: 1
version: 1
image: {repository: acme/ops, colour: red, smoke: ["true"], ports: [80:80], network: host}
health: {interval: often}
strategy: {canary: 9, wave: [1, 150%, 0], colour: red}
fleet:
  defaults: {user: ops, port: many, identity: nokey}
  devices:
    - {name: a, host: a, board: orinn, colour: red}
    - {name: a, host: a, board: orin, target: sm87-nope}
    - {name: c, board: orin, colour: red}
    - {name: d, host: d, port: 0}
    - {name: e, hots: e, bord: orin}
  groups: {lab: [x]}
"""


def test_one_look_finds_all_problems_whatever_else_is_wrong(tmp_path):
    (tmp_path / "deploy.yaml").write_text(WRONG_ALL_OVER)
    with pytest.raises(ConfigError) as caught:
        load_fleet(tmp_path / "deploy.yaml", CATALOG)
    rows = caught.value.what.replace(f"{tmp_path}/deploy.yaml:", "").splitlines()[1:]
    told = [line.strip() for line in rows]
    for said in (
        "1:23: unknown key 'targets.0.colour'",
        "1:38: arch: no GPU of compute capability 9.9",
        "1:62: platform 'nope' is not known",
        "1:78: targets.2.fat: 'maybe' is neither",
        "2:1: there is no folder or sdist 'nowhere'",
        "4:1: key 'version' is given twice",
        "5:31: unknown key 'image.colour'",
        "5:1: ports are not published with network: host",
        "6:10: health.interval: 'often' is not a number",
        "7:12: 9 canaries, and the fleet has 5 devices",
        "7:33: strategy.wave.1: '150%' is not between 1 and 100%",
        "7:39: strategy.wave.2: 0 is not between 1 and 100%",
        "7:43: unknown key 'strategy.colour'",
        "9:25: fleet.defaults.port: 'many' is not a whole number",
        "9:37: there is no file 'nokey' here",
        "11:26: board 'orinn' is not known; did you mean 'orin'?",
        "11:40: unknown key 'fleet.devices.0.colour'",
        "12:8: a device named 'a' is there already",
        "12:39: platform 'nope' is not known",
        "13:7: a device has an `address: user@host`, or a `host`",
        "13:30: unknown key 'fleet.devices.2.colour'",
        "14:8: d has no board",
        "14:26: fleet.devices.3.port: 0 is less than 1",
        "15:17: unknown key 'fleet.devices.4.hots'; did you mean 'host'?",
        "15:26: unknown key 'fleet.devices.4.bord'; did you mean 'board'?",
        "16:18: there is no device 'x'",
    ):
        assert any(line.startswith(said) for line in told), (said, told)
        told = [line for line in told if not line.startswith(said)]
    assert told == [], "nothing that only follows from the others"


def test_a_file_that_is_not_there_is_told_with_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for read in (targets_file_of, lambda path: load_fleet(path, CATALOG)):
        with pytest.raises(ConfigError) as caught:
            read(Path("nofile.yaml"))
        assert caught.value.why == f"it was looked for in {tmp_path}"
        assert "--deploy FILE" in caught.value.fix


def test_tasks_that_need_no_devices_do_not_need_the_inventory(tmp_path):
    fleet = "  inventory: made-by-ci.json\n  groups: {lab: [a]}\nstrategy: {canary: 7}\n"
    assert load_deployment(write(tmp_path, fleet), CATALOG).fleet.inventory == "made-by-ci.json"


def test_canaries_are_counted_with_the_inventory(tmp_path):
    more = {"more.yaml": "- {name: c, host: c, board: tx2}\n"}
    fleet = "  defaults: {user: ops}\n  inventory: more.yaml\nstrategy: {canary: 2}\n"
    assert "2 canaries, and the fleet has 1 devices" in problems(tmp_path, fleet, **more)


@pytest.mark.parametrize("form", ["deploy.yaml", "list", "ansible", "ansible --list"])
def test_a_fleet_of_5000_devices_is_read_and_checked_in_moments(tmp_path, form):
    boards = ["tx2", "orin"]
    rows = [(f"robot-{n:04}", f"10.1.{n // 250}.{n % 250}", boards[n % 2]) for n in range(5000)]
    own = "".join(
        f"- {{name: {name}, host: {host}, board: {board}, groups: [site-{int(name[-2:])}]}}\n"
        for name, host, board in rows
    )
    fleet, files = "  defaults: {user: ops}\n", {}
    if form == "deploy.yaml":
        fleet += "  devices:\n" + "".join(f"    {line}\n" for line in own.splitlines())
    elif form == "list":
        fleet, files = fleet + "  inventory: more.yaml\n", {"more.yaml": own}
    elif form == "ansible --list":
        hosts = {n: {"ansible_host": host, "jetship_board": board} for n, host, board in rows}
        printed = {"_meta": {"hostvars": hosts}, "all": {"children": ["ungrouped"]}}
        fleet += "  inventory: more.json\n"
        files = {"more.json": json.dumps(printed, indent=4)}
    else:
        hosts = "".join(
            f"    {name}: {{ansible_host: {host}, jetship_board: {board}}}\n"
            for name, host, board in rows
        )
        fleet, files = fleet + "  inventory: more.yaml\n", {"more.yaml": f"all:\n  hosts:\n{hosts}"}
    path = write(tmp_path, fleet, **files)
    began = time.process_time()
    found = load_fleet(path, CATALOG)[1]
    spent = time.process_time() - began
    assert len(found.devices) == 5000
    assert found.devices[-1].address == Address("ops", "10.1.19.249")
    assert spent < 3, f"{spent:.1f} s; the whole plan of such a fleet has 3 s"


def test_as_many_problems_as_devices_are_told_in_moments(tmp_path):
    rows = "".join(f"    - {{name: d{n}, host: h{n}, board: x{n}}}\n" for n in range(2000))
    began = time.process_time()
    said = problems(tmp_path, f"  defaults: {{user: ops}}\n  devices:\n{rows}")
    assert said.startswith("deploy.yaml has 2000 problems")
    assert time.process_time() - began < 5


def test_the_repository_lists_no_device_of_anybodys():
    _, fleet = load_fleet(Path(__file__).parents[3] / "deploy.yaml", CATALOG)
    assert all(device.address.host.endswith(".example.net") for device in fleet.devices)
