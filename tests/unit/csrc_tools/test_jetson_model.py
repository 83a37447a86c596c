import copy
import json
import math

import jetson_model
import kernel_instructions
import pytest
import yaml
from jetship.targets.catalog import Catalog
from jetson_model import Bench, Model, ModelError, page

# A GPU that was measured, with 1000 GB/s, and one with a tenth of everything and half the clock.
FACTS = {
    "pipes": {"9.0": {"issued": 128, "fma": 128, "alu": 64, "xu": 16}},
    "shared": {"9.0": [["fma", "alu"]]},
    "gpus": [
        {"title": "Small", "board": "s", "arch": 9.0, "cuda": 13.0, "bandwidth": 100,
         "processors": 10, "clock": 500, "source": "its data sheet"},
    ],
    "reference": {
        "title": "Large", "board": "l", "device": "A Large One", "arch": 9.0, "cuda": 13.0,
        "bandwidth": 1000, "processors": 100, "clock": 1000, "source": "its data sheet",
    },
    "elementwise": [
        {
            "title": "work", "elements": 16_000_000, "element_bytes": 2,
            "measured": {"group": "g", "case": "c", "contender": "jetops", "mode": "replay"},
            "steps": [{"kernel": "k", "arguments": "half", "tensors": 2}],
        }
    ],
    "nms": {
        "boxes": [2000], "title": "nms {boxes}", "attn_element_bytes": 4, "pair_instructions": 20,
        "measured": {"group": "nms", "case": "n {boxes}", "contender": "jetops", "mode": "cold"},
    },
    "copy_contender": "copy",
}  # fmt: skip
# 2 million stores of 16 bytes.
COUNTS = [
    {"kernel": "k", "arguments": "half", "arch": "9.0", "cuda": "13.0",
     "issued": 64.0, "fma": 32.0, "alu": 16.0, "xu": 2.0},
]  # fmt: skip


def row(place: str, us: float | None, size: float) -> dict:
    group, case, contender, mode = place.split("/")
    return {
        "group": group, "case": case, "contender": contender, "mode": mode, "us": us, "low": us,
        "high": us, "bytes": size, "note": "",
    }  # fmt: skip


ROWS = [
    row("g/c/jetops/replay", 100.0, 64e6),
    row("g/c/copy/replay", 80.0, 64e6),
    row("g/large/copy/plain", 1100.0, 8e8),
    row("g/large/copy/replay", 1000.0, 8e8),
    row("nms/n 2000/jetops/cold", 60.0, 16e6),
    row("nms/n 2000/copy/cold", 20.0, 16e6),
]


@pytest.fixture
def facts() -> dict:
    return copy.deepcopy(FACTS)


@pytest.fixture
def counts() -> list[dict]:
    return copy.deepcopy(COUNTS)


def model_of(facts=FACTS, rows=ROWS, counts=COUNTS, device="A Large One") -> Model:
    return Model(facts, Bench({"device": device}, rows), counts)


def test_the_largest_copy_says_how_much_of_the_bandwidth_is_reached():
    assert model_of().copy_share == pytest.approx(0.8)


def test_work_bound_by_memory_takes_as_long_as_a_copy_over_the_efficiency():
    (case, _) = model_of().cases()
    # 2e6 stores * (32 / 128 + 16 / 64) clocks on 100 processors at 1 GHz: 10 us, and a copy 80.
    assert case.finding == ("80% of a copy's rate, 10% of the instruction rate: efficiency 80%")
    (small,) = case.estimates
    assert small.us == pytest.approx(64e6 / (100e3 * 0.8) / 0.8)
    assert (case.bound, small.bound) == ("memory", "memory")


def test_work_bound_by_arithmetic_takes_as_long_as_its_busiest_pipe(counts):
    counts[0]["xu"] = 16.0 * 10
    case, _ = model_of(counts=counts).cases()
    (small,) = case.estimates
    # 2e6 * 10 clocks: 200 us where it was measured in 100, which cannot be; 20 times that there.
    assert small.us == pytest.approx(2e6 * 10 / 10 / 500 / 2.0)
    assert (case.bound, small.bound) == ("arithmetic", "arithmetic")


def test_pipes_that_are_one_machinery_add_up(facts, counts):
    counts[0] |= {"fma": 128.0 * 5, "alu": 64.0 * 5, "issued": 0.0, "xu": 0.0}
    together = model_of(counts=counts)
    facts["shared"]["9.0"] = []
    apart = model_of(facts, counts=counts)
    one, other = (
        model.reference.microseconds({"fma": 640.0, "alu": 320.0}) for model in (together, apart)
    )
    assert one == 2 * other


def test_kernels_one_after_the_other_add_up(facts, counts):
    (step,) = facts["elementwise"][0]["steps"]
    facts["elementwise"][0]["steps"] = [
        {**step, "tensors": 1},
        {**step, "tensors": 1, "arguments": "slow"},
    ]
    counts.append({**counts[0], "arguments": "slow", "xu": 16.0 * 3})
    case, _ = model_of(facts, counts=counts).cases()
    # Half a copy is 40 us; the second kernel takes 2e6 * 3 clocks on 100 processors, 60 us.
    assert case.efficiency == pytest.approx((40 + 60) / 100)
    (small,) = case.estimates
    assert small.us == pytest.approx(32e6 / (100e3 * 0.8) + 2e6 * 3 / 10 / 500)


def test_another_instance_may_have_been_measured(facts, counts):
    facts["elementwise"][0]["steps"][0]["reference_arguments"] = "bfloat"
    counts.append({**counts[0], "arguments": "bfloat", "xu": 16.0 * 6})
    case, _ = model_of(facts, counts=counts).cases()
    assert case.bound == "arithmetic"
    assert case.estimates[0].bound == "memory"
    assert "| work | 667 memory\\* |" in page(model_of(facts, counts=counts), "bench.json")


def test_what_the_nms_does_in_order_takes_the_same_clocks():
    _, case = model_of().cases()
    # 60 us less a copy of 20; arithmetic is 2000 * 1999 / 2 * 20 / 128 / 100 / 1000: 3 us.
    assert case.finding.endswith("40 thousand clocks besides")
    (small,) = case.estimates
    assert small.us == pytest.approx(16e6 / (100e3 * 0.8) + 40_000 / 500)
    assert (case.bound, small.bound) == ("order", "memory")


def test_an_nms_that_is_faster_than_a_copy_of_its_input_is_an_error():
    rows = [*ROWS[:-1], row("nms/n 2000/copy/cold", 61.0, 16e6)]
    with pytest.raises(ModelError, match="faster than a copy"):
        model_of(rows=rows).cases()


def test_a_row_that_is_missing_is_told_with_its_nearest(facts):
    facts["elementwise"][0]["measured"]["contender"] = "jetop"
    with pytest.raises(ModelError, match=r"no row g / c / jetop / replay; .* g / c / jetops / rep"):
        model_of(facts).cases()


@pytest.mark.parametrize("us", [math.nan, None, 0.0])
def test_a_row_that_could_not_be_timed_is_an_error(us):
    rows = [row("g/c/jetops/replay", us, 64e6), *ROWS[1:]]
    with pytest.raises(ModelError, match="could not time g / c / jetops / replay"):
        model_of(rows=rows).cases()


def test_a_benchmark_of_another_gpu_is_an_error():
    with pytest.raises(ModelError, match=r"ran on A Laptop; .* knows A Large One"):
        model_of(device="A Laptop")


def test_a_kernel_that_was_not_counted_is_an_error():
    with pytest.raises(ModelError, match=r"has no row k / half / 9\.0 / 13\.0"):
        model_of(counts=[]).cases()


def test_the_page_says_that_it_is_a_model():
    text = page(model_of(), "docs/benchmarks/large.json")
    assert text.startswith("# jetops on Jetsons: a model, not a measurement\n")
    assert "--bench docs/benchmarks/large.json" in text
    assert "**No Jetson was at hand.**" in text
    assert "| work | Small |" in text
    assert "| g c: jetops (replay) | work | 100.0 | memory | 80% of" in text
    assert "| nms n 2000: jetops (cold) | nms 2000 | 60.0 | order | 20.0 us a copy" in text
    assert "| Small | 9.0 | 100 | 80 | 10 | 500 | its data sheet |" in text


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(ModelError, match=r"bench\.json cannot be read \(No such file"):
        jetson_model.read(tmp_path / "bench.json", jetson_model.INSTRUCTIONS)


class TestTheShippedFacts:
    @pytest.fixture
    def shipped(self) -> dict:
        return yaml.safe_load((jetson_model.TOOLS / "jetson_model.yaml").read_text())

    def test_every_gpu_is_a_known_board_of_that_arch(self, shipped):
        boards = {board.name: board for board in Catalog.load().boards}
        for gpu in (*shipped["gpus"], shipped["reference"]):
            assert str(gpu["arch"]) == boards[gpu["board"]].arch

    def test_every_gpu_has_pipes_and_a_source(self, shipped):
        for gpu in (*shipped["gpus"], shipped["reference"]):
            arch = str(gpu["arch"])
            assert set(shipped["pipes"][arch]) == {"issued", *kernel_instructions.PIPES}
            assert {pipe for pipes in shipped["shared"][arch] for pipe in pipes} <= set(
                kernel_instructions.PIPES
            )
            assert gpu["source"]

    def test_every_kernel_is_counted_for_every_gpu(self, shipped):
        rows = json.loads(jetson_model.INSTRUCTIONS.read_text())["rows"]
        counted = {(row["kernel"], row["arguments"], row["arch"], row["cuda"]) for row in rows}
        for case in shipped["elementwise"]:
            for step in case["steps"]:
                for gpu in shipped["gpus"]:
                    place = (str(gpu["arch"]), str(gpu["cuda"]))
                    assert (step["kernel"], step["arguments"], *place) in counted
                arguments = step.get("reference_arguments", step["arguments"])
                assert (step["kernel"], arguments, "9.0", "13.0") in counted
