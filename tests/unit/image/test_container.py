import pytest
import yaml
from jetship.image.compose import COMPOSE, COMPOSE_CDI, DAEMON, compose_files
from jetship.image.container import Container, container_for, create_words
from jetship.targets.catalog import Catalog
from jetship.targets.imageplan import ImagePlan
from jetship.targets.resolve import resolve
from jetship.targets.strategy import Health

CATALOG = Catalog.load()
PLAN = ImagePlan.model_validate(
    {
        "repository": "acme/ops",
        "smoke": ["true"],
        "command": ["python3", "-m", "robot", "--cost=$5"],
        "environment": {"LEVEL": 3, "PRICE": "$5"},
        "mounts": ["/data:/data"],
        "devices": ["/dev/video0"],
        "groups": ["dialout", "video"],
        "ports": ["8080:80"],
        "user": "1000",
        "shm_size": "512m",
    }
)
SHORT_LIST = [
    "nvhost-ctrl", "nvhost-ctrl-gpu", "nvhost-prof-gpu", "nvmap", "nvhost-gpu", "nvhost-as-gpu",
    "nvhost-vic",
]  # fmt: skip


def platform(board, jetpack):
    return resolve(CATALOG, board=board, jetpack=jetpack)[0].platform


def files(board, jetpack="", **more):
    target = resolve(CATALOG, board=board, jetpack=jetpack, platform=more.pop("platform", ""))[0]
    given = {"plan": PLAN, "health": Health(), **more}
    return compose_files(
        target=target, board=CATALOG.board(board), image="acme/ops:1", catalog=CATALOG, **given
    )


def service(text):
    (found,) = yaml.safe_load(text)["services"].values()
    return found


@pytest.mark.parametrize(
    ("board", "jetpack", "nodes"),
    [
        ("tx2", "4.6", SHORT_LIST),
        ("xavier", "4.6", SHORT_LIST),
        ("xavier", "5.1", SHORT_LIST),
        ("orin", "5.1", SHORT_LIST),
        ("orin", "6.0", []),
        ("orin", "6.2", []),
        ("thor", "7.0", []),
        ("orin", "7.2", []),
    ],
)
def test_a_jetson_gets_the_runtime_the_group_and_the_nodes_of_its_release(board, jetpack, nodes):
    found = container_for(platform(board, jetpack), CATALOG.board(board), CATALOG)
    assert found == Container(
        runtime="nvidia", groups=("video",), devices=tuple(f"/dev/{node}" for node in nodes)
    )


@pytest.mark.parametrize("line", CATALOG.device_lines, ids=lambda line: line.l4t)
def test_no_node_is_passed_by_name_that_nvidias_list_of_the_release_does_not_have(line):
    assert set(line.nodes) <= set(line.listed)
    assert len(set(line.listed)) == len(line.listed)
    if line.l4t >= "r36":
        assert line.nodes == ()
        assert not {"nvhost-ctrl", "nvhost-vic", "nvhost-nvdec", "nvhost-msenc"} & set(line.listed)
        assert line.cdi == "nvidia.com/gpu=all"
    else:
        assert "nvhost-ctrl" in line.listed
        assert line.cdi == ""


def test_each_jetpack_platform_has_its_line_of_devices():
    found = {one.name: CATALOG.devices_on(one) for one in CATALOG.platforms if one.l4t}
    assert all(found.values()), found


def test_a_server_gets_all_its_gpus_and_an_open_image_none():
    server = CATALOG.platform("server-cuda-11.8")
    assert container_for(server, CATALOG.board("a100"), CATALOG) == Container(all_gpus=True)
    for name in ("orin", "a100"):
        open_one = CATALOG.platform("debian-12")
        assert container_for(open_one, CATALOG.board(name), CATALOG) == Container()


def test_the_words_of_docker_create_have_all_that_deploy_yaml_says():
    words = create_words(platform("orin", "6.2"), CATALOG.board("orin"), CATALOG, PLAN)
    assert words == (
        "--runtime", "nvidia", "--user", "1000", "--shm-size", "512m", "--device", "/dev/video0",
        "--group-add", "video", "--group-add", "dialout", "--env", "LEVEL=3", "--env", "PRICE=$5",
        "--volume", "/data:/data", "--publish", "8080:80",
    )  # fmt: skip


def test_compose_says_the_same_as_the_words():
    found = files("xavier", "5.1")
    assert set(found) == {COMPOSE, DAEMON}
    assert service(found[COMPOSE]) == {
        "image": "acme/ops:1",
        "command": ["python3", "-m", "robot", "--cost=$$5"],
        "runtime": "nvidia",
        "devices": [*(f"/dev/{node}" for node in SHORT_LIST), "/dev/video0"],
        "group_add": ["video", "dialout"],
        "environment": {"LEVEL": "3", "PRICE": "$$5"},
        "volumes": ["/data:/data"],
        "ports": ["8080:80"],
        "user": "1000",
        "shm_size": "512m",
        "restart": "unless-stopped",
    }
    assert yaml.safe_load(found[DAEMON])["runtimes"]["nvidia"]["path"] == "nvidia-container-runtime"
    assert "nvgpu/igpu0/tsg" in found[COMPOSE], "what the runtime adds is told"


def test_from_r36_on_the_gpu_may_be_named_by_cdi():
    found = files("orin", "6.2")
    assert set(found) == {COMPOSE, COMPOSE_CDI, DAEMON}
    plain, cdi = service(found[COMPOSE]), service(found[COMPOSE_CDI])
    assert (plain.pop("runtime"), plain.pop("devices")) == ("nvidia", ["/dev/video0"])
    assert cdi.pop("devices") == ["nvidia.com/gpu=all", "/dev/video0"]
    assert cdi == plain
    assert "nvidia-ctk cdi generate" in found[COMPOSE_CDI]


def test_a_servers_compose_asks_for_its_gpus():
    found = files("a100", platform="server-cuda-11.8", plan=ImagePlan(repository="a", smoke=("x",)))
    assert set(found) == {COMPOSE}
    devices = [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
    assert service(found[COMPOSE]) == {
        "image": "acme/ops:1",
        "deploy": {"resources": {"reservations": {"devices": devices}}},
        "restart": "unless-stopped",
    }


def test_the_health_command_is_the_services_health_check():
    found = files("tx2", "4.6", health=Health(command=("test", "-e", "$OK"), interval=2.5))
    assert service(found[COMPOSE])["healthcheck"] == {
        "test": ["CMD", "test", "-e", "$$OK"],
        "interval": "2.5s",
        "timeout": "120s",
        "start_period": "120s",
    }


def test_an_image_that_the_board_does_not_run_says_so():
    found = files("tx2", platform="debian-12")
    assert "does not use the GPU of a" in found[COMPOSE].replace("\n# ", " ")
