import re
from pathlib import Path

import pytest
from jetship.targets.buildsettings import GIVEN_BY_JETSHIP, BuildSettings
from jetship.targets.deployment import Deployment
from pydantic import ValidationError

README = Path(__file__).resolve().parents[3] / "README.md"
DEPLOY = {"version": 1, "project": "ops", "targets": [{"arch": "6.2"}],
          "image": {"repository": "acme/ops", "smoke": ["true"]}}  # fmt: skip


def test_a_deploy_yaml_need_not_say_anything_of_the_build():
    settings = Deployment.model_validate(DEPLOY).build
    assert settings == BuildSettings()
    assert (settings.env, settings.before_build, settings.constraints) == ({}, (), ())
    assert settings.time_limit_minutes == 120


def test_what_it_says_is_read():
    said = {
        "env": {"OPS_FLAVOUR": "small", "LDFLAGS": "-lm"},
        "before_build": [["python3", "tools/generate.py", "a b"], ["make"]],
        "time_limit_minutes": 0.5,
        "constraints": ["cmake<4"],
    }
    settings = Deployment.model_validate(DEPLOY | {"build": said}).build
    assert settings.env == said["env"]
    assert settings.before_build == (("python3", "tools/generate.py", "a b"), ("make",))
    assert settings.time_limit_minutes == 0.5
    assert settings.constraints == ("cmake<4",)


@pytest.mark.parametrize("name", sorted(GIVEN_BY_JETSHIP))
def test_what_leads_to_the_target_cannot_be_set(name):
    with pytest.raises(ValidationError, match=f"{name} cannot be set here"):
        BuildSettings(env={name: "x"})


def test_the_readme_lists_what_cannot_be_set():
    text = README.read_text(encoding="utf-8")
    listed = text.split("those that jetship sets for the target: ")[1].split(". `LDFLAGS`")[0]
    assert re.findall(r"`(\w+)`", listed) == sorted(GIVEN_BY_JETSHIP)


@pytest.mark.parametrize(
    "said",
    [
        {"before_build": ["make all"]},
        {"before_build": [[]]},
        {"before_build": [[""]]},
        {"time_limit_minutes": 0},
        {"time_limit_minutes": -1},
        {"constraints": [""]},
        {"env": {"": "x"}},
        {"env": {"A": None}},
        {"env": {"B=C": "x"}},
        {"env": {"A": "x\0y"}},
        {"env": {"A\0": "x"}},
        {"before_build": [["make", "a\0b"]]},
        {"constraints": ["!!"]},
        {"constraints": ["ops[fast]<2"]},
        {"after_build": []},
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(said):
    with pytest.raises(ValidationError):
        BuildSettings.model_validate(said)
