import json

import pytest
from jetship.errors import ConfigError
from jetship.targets.inventory import expand_range, read_inventory

YAML_FORM = """\
all:
  vars: {ansible_user: ops}
  children:
    lines:
      vars: {jetship_board: tx2, ansible_port: 2222}
      children:
        berlin:
          hosts:
            arm[01:02]: {ansible_host: 192.0.2.9}
            arm03: {jetship_board: orin, jetship_labels: {bay: 7}}
          vars: {ansible_port: "22", ansible_python_interpreter: auto_silent}
    spare:
      hosts: {arm03: }
"""


def write(folder, text, name="hosts.yaml"):
    path = folder / name
    path.write_text(text)
    return path


def rows(path):
    found, problems = read_inventory(path)
    assert problems == []
    return {one.row.name: one.row for one in found}


def problems(path):
    _, found = read_inventory(path)
    return [line.replace(f"{path}:", "") for line in found]


def test_our_own_list_has_the_form_of_deploy_yaml(tmp_path):
    path = write(tmp_path, "- {name: a, address: ops@a, board: tx2}\n- {name: b, host: b}\n")
    found = rows(path)
    assert found["a"].board == "tx2"
    assert found["b"].host == "b"


def test_ansibles_groups_and_variables_hold_as_they_do_there(tmp_path):
    found = rows(write(tmp_path, YAML_FORM))
    assert list(found) == ["arm01", "arm02", "arm03"]
    first, last = found["arm01"], found["arm03"]
    assert (first.host, first.user, first.port, first.board) == ("192.0.2.9", "ops", 22, "tx2")
    assert first.groups == ("berlin", "lines")
    assert (last.host, last.board, last.labels) == ("arm03", "orin", {"bay": "7"})
    assert last.groups == ("berlin", "lines", "spare")
    assert first.python is None, "auto is Ansible's own search"


def test_what_ansible_inventory_list_prints_is_read(tmp_path):
    printed = {
        "_meta": {
            "hostvars": {
                "arm01": {"ansible_host": "192.0.2.1", "ansible_user": "ops", "other": {"a": [1]}},
                "arm02": {"ansible_ssh_private_key_file": "keys/arm", "jetship_board": "tx2"},
            }
        },
        "all": {"children": ["ungrouped", "berlin"]},
        "ungrouped": {"hosts": ["arm02"]},
        "berlin": {"hosts": ["arm01"]},
    }
    found = rows(write(tmp_path, json.dumps(printed, indent=4), "fleet.json"))
    assert (found["arm01"].host, found["arm01"].groups) == ("192.0.2.1", ("berlin",))
    assert (found["arm02"].identity, found["arm02"].groups) == ("keys/arm", ())


def test_a_group_of_higher_priority_comes_first_and_the_deeper_one_before(tmp_path):
    text = """\
all:
  children:
    a:
      vars: {jetship_board: tx2, ansible_group_priority: 10, jetship_state: /a}
      hosts: {h: }
    b:
      vars: {jetship_board: orin, jetship_state: /b}
      children: {c: {hosts: {h: }, vars: {jetship_state: /c}}}
"""
    found = rows(write(tmp_path, text))["h"]
    assert (found.board, found.state) == ("tx2", "/c")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("jetship_board: tx2", "jetship_bord: tx2"), "5:14: jetship has no variable 'jetship_b"),
        (('"22"', "abc"), "11:18: ansible_port: 'abc' is not a whole number"),
        (("192.0.2.9", '"{{ ip }}"'), "9:26: ansible_host is a template"),
        (("[01:02]", "[02:01]"), "9:13: 'arm[02:01]': 02 does not come before 01"),
        (("hosts: {arm03: }", "host: {arm03: }"), "13:7: a group has hosts, children and vars"),
        (("hosts: {arm03: }", "hosts: 3"), "13:7: this is a mapping of names, or a list"),
        (("hosts: {arm03: }", "children: {spare: }"), "12:5: the group 'spare' is its own child"),
        (("{bay: 7}", "7"), "10:42: jetship_labels: 7 is not a mapping"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, change, said):
    assert change[0] in YAML_FORM
    found = problems(write(tmp_path, YAML_FORM.replace(*change, 1)))
    assert any(line.startswith(said) for line in found), found


def test_problems_of_a_list_come_all_at_once(tmp_path):
    path = write(tmp_path, "- {name: a b, host: a}\n- {nam: b, host: -b}\n- 3\n")
    places = [line.split(" ")[0] for line in problems(path)]
    assert places == ["1:4:", "2:3:", "2:12:", "2:4:", "3:3:"]


def test_a_wrong_key_hides_nothing_else_of_its_row(tmp_path):
    text = "- {name: a, colour: red}\n- {name: a, host: a, name: b}\n"
    assert [line.split(" ")[0] for line in problems(write(tmp_path, text))] == [
        "2:22:", "1:13:", "1:3:",
    ]  # fmt: skip
    found, _ = read_inventory(write(tmp_path, "- {name: a, host: a, board: orinn, colour: red}\n"))
    assert [(one.row.board, one.unread) for one in found] == [("orinn", {"colour"})]


@pytest.mark.parametrize(("way", "count"), [("local", 1), ("ansible.builtin.ssh", 0), ("smart", 0)])
def test_hosts_that_are_not_reached_by_ssh_are_not_passed_over(tmp_path, way, count):
    text = f"all:\n  hosts:\n    a: {{ansible_connection: {way}, ansible_user: o}}\n"
    found = problems(write(tmp_path, text))
    assert len(found) == count
    assert all("3:9: ansible_connection: 'local' is another way than SSH" in one for one in found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("devices: [{name: a}]\n", "without a key above it"),
        ("just text\n", "neither a list of devices nor Ansible's inventory"),
        ("all: {hosts: {}}\n", "it has no hosts; write a line for each device"),
        ("", "it is empty; write a line for each device, `- {name: one, address: user@host"),
        ("plugin: aws_ec2\nregions: [x]\n", "1:1: the plugin 'aws_ec2' is one that Ansible itself"),
        ("all: [a]\n", "is a mapping with hosts, children or vars"),
    ],
)
def test_a_file_of_another_kind_is_no_inventory(tmp_path, text, said):
    (found,) = problems(write(tmp_path, text))
    assert said in found


def test_an_ini_inventory_is_named_as_such(tmp_path):
    with pytest.raises(ConfigError, match=r"ansible-inventory -i .* --list > fleet\.json"):
        read_inventory(write(tmp_path, "[line]\narm01 ansible_host=192.0.2.1\n", "hosts"))


def test_variables_in_folders_beside_it_are_not_passed_over(tmp_path):
    path = write(tmp_path, YAML_FORM)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/line.yml").write_text("colour: red\n")
    rows(path)
    (tmp_path / "group_vars/all.yml").write_text("ansible_user: root\n")
    assert "group_vars/all.yml sets variables" in problems(path)[0]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("tx2", ["tx2"]),
        ("a[1:3]", ["a1", "a2", "a3"]),
        ("a[08:10].example", ["a08.example", "a09.example", "a10.example"]),
        ("a[a:c]-[1:5:2]", [f"a{x}-{n}" for x in "abc" for n in (1, 3, 5)]),
        ("a[:2]", ["a0", "a1", "a2"]),
    ],
)
def test_ranges_are_ansibles(pattern, names):
    assert list(expand_range(pattern)) == names


@pytest.mark.parametrize("pattern", ["a[x:9]", "a[1:2:0]", "a[01:100]", "a[1:2:3:4]", "a[-1:2]"])
def test_other_ranges_are_refused(pattern):
    with pytest.raises(ValueError, match=r"range|width"):
        list(expand_range(pattern))
