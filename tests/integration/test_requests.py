"""Requests that cannot be fulfilled, and those that only ask: nothing is built here."""

import json

import pytest
from product import PROJECTS, invoke, jetship, names_in

BAD_ARCHS = {
    "6.3": "no GPU of compute capability 6.3 is known",
    "sm62": "did you mean 6.2?",
    "All": "is not a compute capability",
    "": "--arch is empty",
    "Pascal": "family names do not say which GPU",
    "6.2,,7.2": "empty entry at position 2",
    "6.2,6.2": "names 6.2 more than once",
    "11.0": "CUDA 11.8 of debian-12 drives no GPU of compute capability 11.0",
    "6.2+ptx": "did you mean 6.2+PTX?",
}


@pytest.fixture
def nothing(tmp_path):
    """The options of a build that must not come to anything, and what would show that it did."""
    options = {"JETSHIP_CACHE": str(tmp_path / "cache")}
    yield ("--dist", tmp_path / "dist"), options
    assert names_in(tmp_path / "dist") == []
    assert names_in(tmp_path / "cache") == []


@pytest.mark.parametrize(("arch", "said"), BAD_ARCHS.items(), ids=lambda text: repr(text)[:12])
def test_an_arch_that_cannot_be_built_for(nothing, arch, said):
    words, variables = nothing
    assert said in invoke("build", "--arch", arch, *words, **variables).one_error(2)


def test_a_platform_that_is_not_known_gets_the_nearest_one(nothing):
    words, variables = nothing
    done = invoke("build", "--arch", "6.2", "--platform", "debian12", *words, **variables)
    assert "did you mean 'debian-12'?" in done.one_error(2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--arch", "7.0", "--jetpack", "5.1"), "the Xavier GPU is 7.2"),
        (
            ("--board", "tx2", "--platform", "jetpack-6.2"),
            "the last that jetship knows for it is JetPack 4.6",
        ),
        (("--arch", "6.2", "--jetpack", "7.0"), "CUDA 12.9 is the last"),
        (("--arch", "10.1", "--jetpack", "7.0"), "CUDA 13 calls it 11.0"),
        (("--board", "orin"), "jetpack-5.1, jetpack-6.0, jetpack-6.2, jetpack-7.2"),
        (("--arch", "8.7", "--jetpack", "6.3"), "the nearest known one is 6.2.2"),
        (("--arch", "8.7", "--jetpack", "6.1", "--platform", "jetpack-6.0"), "jetpack-6.2, not"),
        (("--board", "tx2", "--arch", "7.2"), "the GPU of a Jetson TX2 is 6.2, not 7.2"),
        (("--arch", "7.0", "--board", "xavier"), "7.0 is Volta of servers"),
        (("--board", "orin,xavier"), "--arch 8.7,7.2 --platform jetpack-5.1"),
        (("--target", "tx2"), "'tx2' is not a target id"),
        (("--cpu-only", "--arch", "6.2"), "leave one of them out"),
    ],
    ids=" ".join,
)
def test_what_does_not_go_together(nothing, options, said):
    words, variables = nothing
    assert said in invoke("build", *options, *words, **variables).one_error(2)


def test_a_board_whose_toolkit_is_nvidias_alone_names_the_option_that_takes_it(nothing):
    words, variables = nothing
    error = invoke("build", "--board", "tx2", *words, **variables).one_error(4)
    assert "the toolchain of jetpack-4.6 lacks 1 part: cuda" in error
    assert "--cuda-home: CUDA 10.2 for x86-64" in error


def test_a_cuda_home_without_nvcc_is_told_before_anything_is_downloaded(nothing, tmp_path):
    words, variables = nothing
    own = ("--cuda-home", tmp_path)
    error = invoke("build", "--board", "tx2", *own, *words, **variables).one_error(2)
    assert f"--cuda-home {tmp_path} has no bin/nvcc" in error
    assert "preparing" not in error


def test_archs_of_the_environment_are_said_aloud(nothing):
    words, variables = nothing
    done = invoke(
        "build", "--jetpack", "6.2", "--dry", *words, **variables, TORCH_CUDA_ARCH_LIST="8.7"
    ).good()
    assert done.stdout.startswith("sm87-jetpack-6.2: ")
    assert "--arch is taken from TORCH_CUDA_ARCH_LIST=8.7" in done.stderr


@pytest.mark.parametrize(
    ("options", "target"),
    [
        (("--board", "xavier", "--jetpack", "5.1.2"), "sm72-jetpack-5.1"),
        (("--target", "sm110ptx-jetpack-7.0"), "sm110ptx-jetpack-7.0"),
        (("--target", "cpu-jetpack-4.6"), "cpu-jetpack-4.6"),
        (("--cpu-only", "--board", "tx2"), "cpu-jetpack-4.6"),
    ],
    ids=" ".join,
)
def test_dry_says_which_target_the_options_are(nothing, options, target):
    words, variables = nothing
    plan = invoke("build", *options, "--dry", "--json", *words, **variables).good().json["plan"]
    assert [row["target"] for row in plan] == [target]


@pytest.mark.parametrize(
    "option",
    ["--arch", "--board", "--jetpack", "--platform", "--target", "--project", "--cuda-home",
     "--sysroot", "--image", "--torch-wheel", "--python-dev", "--dist", "--deploy"],
)  # fmt: skip
def test_an_option_whose_variable_was_not_set(nothing, option):
    _, variables = nothing
    error = invoke("build", option, "", **variables).one_error(2)
    assert error.startswith(f"{option} is empty")


def test_all_own_parts_that_cannot_be_used_are_one_error(nothing, tmp_path):
    words, variables = nothing
    (tmp_path / "torch.whl").write_text("no wheel")
    done = invoke(
        "build", "--arch", "6.2", "--cuda-home", "/no/cuda", "--sysroot", "/",
        "--torch-wheel", tmp_path / "torch.whl", "--python-dev", tmp_path, *words, **variables,
    )  # fmt: skip
    error = done.one_error(2)
    assert "4 of your own parts cannot be used" in error
    assert "--cuda-home /no/cuda does not exist" in error
    assert "--sysroot / has no usr/lib/aarch64-linux-gnu/libc.so.6" in error
    assert f"--torch-wheel {tmp_path}/torch.whl is not a wheel" in error
    assert f"--python-dev {tmp_path} has no include/python3.11/patchlevel.h" in error


def test_own_parts_of_deploy_yaml_are_named_by_their_place(nothing, tmp_path):
    words, variables = nothing
    (tmp_path / "deploy.yaml").write_text(
        "own_parts:\n  jetpack-4.6:\n    cuda_home: no/cuda\n    sysroot: /no/root\n"
    )
    own = ("--deploy", tmp_path / "deploy.yaml", "--project", PROJECTS / "kernel")
    error = invoke("build", "--board", "tx2", *own, *words, **variables).one_error(2)
    assert f"deploy.yaml:3:5: own_parts.jetpack-4.6.cuda_home {tmp_path}/no/cuda does" in error
    assert "deploy.yaml:4:5: own_parts.jetpack-4.6.sysroot /no/root does not exist" in error
    # What the command line names comes first.
    done = invoke("build", "--board", "tx2", "--cuda-home", "/none", *own, *words, **variables)
    error = done.one_error(2)
    assert "--cuda-home /none does not exist" in error
    assert "cuda_home" not in error


def test_own_parts_of_a_platform_that_is_not_known(nothing, tmp_path):
    words, variables = nothing
    (tmp_path / "deploy.yaml").write_text(
        "own_parts:\n  jetpack-46: {cuda_home: x}\n  debian-12: {cuda_hom: x}\n"
    )
    own = ("--deploy", tmp_path / "deploy.yaml", "--project", PROJECTS / "kernel")
    done = invoke("build", "--arch", "6.2", *own, *words, **variables)
    assert "deploy.yaml:3:15: unknown key 'own_parts.debian-12.cuda_hom'" in done.stderr
    (tmp_path / "deploy.yaml").write_text("own_parts:\n  jetpack-46: {cuda_home: x}\n")
    done = invoke("build", "--arch", "6.2", *own, *words, **variables)
    assert "deploy.yaml:2:3: platform 'jetpack-46' is not known; did you mean" in done.stderr
    assert done.status == 2


def test_a_wheel_that_does_not_exist():
    assert "nope.whl does not exist" in invoke("check", "nope.whl").one_error(2)


def test_the_cache_is_shown(tmp_path):
    cache = {"JETSHIP_CACHE": str(tmp_path)}
    (tmp_path / "trees/gcc-11-0123456789abcdef").mkdir(parents=True)
    row = invoke("cache", "--json", **cache).good().json
    assert [tree["name"] for tree in row["trees"]] == ["gcc-11-0123456789abcdef"]
    done = invoke("cache", "--prune", "--older-than", "0h", **cache).good()
    assert "deleted gcc-11-0123456789abcdef" in done.stdout
    assert names_in(tmp_path / "trees") == []


@pytest.mark.parametrize(
    ("project", "said"),
    [
        ("no/such/folder", "--project no/such/folder does not exist"),
        ("docs", "neither pyproject.toml nor setup.py"),
        (
            "tests/projects/other_backend",
            "build backend 'scikit_build_core.build' is not supported",
        ),
    ],
)
def test_a_folder_that_is_no_project(nothing, project, said):
    words, variables = nothing
    done = invoke("build", "--arch", "6.2", "--project", project, *words, **variables)
    assert said in done.one_error(2)


def test_a_pyproject_that_is_not_toml(nothing, tmp_path):
    words, variables = nothing
    (tmp_path / "pyproject.toml").write_text("[build-system\n")
    done = invoke("build", "--arch", "6.2", "--project", tmp_path, *words, **variables)
    assert "is not valid TOML" in done.one_error(2)


def test_a_dist_that_is_a_file(tmp_path):
    (tmp_path / "dist").touch()
    done = invoke(
        "build", "--arch", "6.2", "--project", PROJECTS / "plain", "--dist", tmp_path / "dist",
        JETSHIP_CACHE=str(tmp_path / "cache"),
    )  # fmt: skip
    assert "is not a folder" in done.one_error(2)
    assert names_in(tmp_path / "cache") == []


def test_an_error_is_one_json_document_too(nothing):
    words, variables = nothing
    done = invoke("build", "--arch", "Pascal", "--json", *words, **variables)
    error = done.json["error"]
    assert error["exit_code"] == 2
    assert error["what"] in done.one_error(2)
    assert error["fix"]


def test_without_arch_and_deploy_yaml_there_is_no_target(nothing, tmp_path):
    words, variables = nothing
    done = jetship("build", "--project", PROJECTS / "plain", *words, cwd=tmp_path, **variables)
    assert "--arch is not given, and deploy.yaml does not exist" in done.one_error(2)


def test_dry_says_what_would_be_built(nothing):
    words, variables = nothing
    done = invoke("build", "--arch", "6.2;7.2+PTX", "--fat", "--dry", *words, **variables)
    line, *below = done.good().stdout.splitlines()
    assert line.startswith("sm62.sm72ptx-debian-12: csrc, TORCH_CUDA_ARCH_LIST=6.2;7.2+PTX, nvcc")
    assert "toolchain will be downloaded" in line
    assert [text.partition(":")[0].strip() for text in below] == [
        "to be fetched", "to be fetched if the project includes them"
    ]  # fmt: skip


def test_dry_as_json_from_another_folder(nothing, tmp_path):
    words, variables = nothing
    done = jetship(
        "build", "--arch", "6.2,7.2", "--project", PROJECTS / "plain", "--dry", "--json", *words,
        cwd=tmp_path, **variables,
    )  # fmt: skip
    rows = done.good().json["plan"]
    assert [row["target"] for row in rows] == ["sm62-debian-12", "sm72-debian-12"]
    assert {row["torch"] for row in rows} == {"2.7.1"}


def test_the_targets_of_deploy_yaml_are_built_when_no_arch_is_given(nothing):
    words, variables = nothing
    plan = invoke("build", "--dry", "--json", *words, **variables).good().json["plan"]
    assert [row["arch_list"] for row in plan] == ["6.2", "7.2", "8.7"]


def test_targets_lists_platforms_and_boards():
    done = invoke("targets").good()
    assert "debian-12" in done.stdout
    assert "jetpack-7.2" in done.stdout
    assert "tx2" in done.stdout
    assert "for emulation and CI" in " ".join(done.stdout.split())
    assert "--cuda-home: CUDA 10.2" in " ".join(done.stdout.split())


def test_targets_as_json():
    platforms = {
        row["platform"]: row for row in invoke("targets", "--json").good().json["platforms"]
    }
    assert platforms["debian-12"]["archs"]["6.2"] == ["Jetson TX2"]
    assert "11.0" not in platforms["debian-12"]["archs"]
    assert platforms["jetpack-7.0"]["archs"] == {"11.0": ["Jetson Thor"]}
    assert platforms["jetpack-5.1"]["evidence"] == "derived"


def test_matrix_is_what_a_github_workflow_takes():
    (line,) = invoke("matrix", "--format", "github").good().stdout.splitlines()
    rows = json.loads(line)["include"]
    assert [row["arch"] for row in rows] == ["6.2", "7.2", "8.7"]


def test_a_matrix_in_a_format_that_is_not_known():
    assert "'gitlab' is not known" in invoke("matrix", "--format", "gitlab").one_error(2)


def test_doctor_says_of_everything_whether_it_is_there():
    done = invoke("doctor")
    rows = [line for line in done.stdout.splitlines() if not line.startswith("     fix: ")]
    lacking = [line for line in rows if line.startswith("LACK ")]
    assert all(line.startswith(("ok   ", "LACK ")) for line in rows)
    assert done.stdout.count("     fix: ") == len(lacking)
    assert done.status == (4 if lacking else 0)
    assert "Traceback" not in done.stderr


def test_doctor_as_json():
    done = invoke("doctor", "--json")
    checks = done.json["checks"]
    assert {"x86-64 machine", "Debian archive", "Docker engine"} <= {row["name"] for row in checks}
    assert done.status == (0 if all(row["ok"] for row in checks) else 4)


def test_the_list_of_tasks_names_each_with_its_summary():
    listed = invoke("--list").good().stdout
    for task in ("build", "check", "image", "smoke", "matrix", "targets", "doctor", "pins",
                 "cache"):  # fmt: skip
        assert f"\n  {task} " in listed


def test_the_help_of_a_task_explains_its_options():
    text = invoke("--help", "build").good().stdout
    assert "--arch" in text
    assert "compute capability" in text


def test_an_option_that_does_not_exist_is_no_traceback():
    done = invoke("build", "--no-such-option")
    assert done.status != 0
    assert "Traceback" not in done.stderr


def test_checking_nothing_selects_nothing():
    assert "no wheel was named" in invoke("check").one_error(3)


def test_the_repository_runs_from_anywhere(tmp_path):
    assert "build" in jetship("--list", cwd=tmp_path).good().stdout
