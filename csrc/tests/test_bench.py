"""The benchmark: its arithmetic on made-up rows, and a real run of small cases."""

import json
import math
import os
import struct
import subprocess
import sys
import time

import pytest
import torch

import jetops
from jetops import reference
from jetops.bench import __main__ as program
from jetops.bench import (
    ceilings,
    cpu_nms,
    dropout,
    gelu,
    goals,
    ingest,
    measure,
    nms,
    plots,
    report,
    results,
    roofline,
    timing,
    work,
)

CPU = torch.device("cpu")
CEILINGS = {
    "copy_gbps": 4000.0,
    "fma_gflops": 60000.0,
    "fma_how": "kernel of FMAs",
    "cached_gbps": 5000.0,
    "smallest_us": 1.2,
}


def row(group, case, contender, mode, us, spread=0.02, **more):
    made = measure.Row(group, case, contender, mode, "cuda", us, us, us)._asdict()
    if us is not None:
        made.update(low=us * (1 - spread), high=us * (1 + spread))
    made.update(more)
    return dict(made)


def about(number):
    return {"quick": False, "about": [], "remarks": [f"remark {number}"]}


def result_of(rows, **more):
    found = {
        "machine": {"device": "A GPU", "torch": "2.11", "jetops": "0.1.0"},
        "ceilings": {"cuda": CEILINGS},
        "groups": {},
        "rows": rows,
    }
    found.update(more)
    return found


# ---------------------------------------------------------------- timing


def test_a_summary_is_the_median_and_the_tenths():
    samples = [float(value) for value in range(101)]
    assert timing.summary(list(reversed(samples))) == (50.0, 10.0, 90.0)
    assert timing.summary(samples, less=5.0) == (45.0, 5.0, 85.0)
    assert timing.summary([3.0]) == (3.0, 3.0, 3.0)


def test_contenders_are_timed_in_turn_and_slow_ones_seldom():
    calls = []

    def fast():
        calls.append("fast")
        time.sleep(0.001)

    def slow():
        calls.append("slow")
        time.sleep(0.02)

    timer = timing.Timer(CPU, samples=8, seconds=0.05)
    found = timer.time_all({"fast": fast, "slow": slow}, timing.CLOCK)
    # Each runs twice to be prepared; then samples alternate as long as there is time for both.
    assert calls == ["fast"] * 2 + ["slow"] * 2 + ["fast", "slow"] * 3 + ["fast"] * 5
    assert 1000 <= found["fast"].median < 10000
    assert 20000 <= found["slow"].low <= found["slow"].median <= found["slow"].high


def test_what_raises_is_the_outcome_and_stops_no_other():
    def broken():
        raise RuntimeError("no kernel for this GPU")

    turns = iter(range(100))

    def breaks_later():
        if next(turns) > 2:
            raise ValueError("out of memory")

    bench = measure.Bench(CPU, quick=True)
    contenders = [
        measure.Contender("broken", broken),
        measure.Contender("late", breaks_later),
        measure.Contender("works", lambda: None),
        measure.Contender("elsewhere", broken, modes=("replay",)),
    ]
    bench.add("group", "case", contenders, ["replay", "plain"])
    found = {one.contender: one for one in bench.rows}
    assert set(found) == {"broken", "late", "works"}
    assert (found["broken"].us, found["broken"].note) == (None, "no kernel for this GPU")
    assert (found["late"].us, found["late"].note) == (None, "out of memory")
    assert found["works"].us > 0
    assert {one.mode for one in bench.rows} == {timing.CLOCK}


# ---------------------------------------------------------------- cases


@pytest.mark.parametrize("density", list(nms.DENSITIES))
def test_each_case_of_nms_is_what_it_is_called(density):
    count = 400
    tensors = nms.problem(density, count, nms.attention(count))
    assert tensors.boxes.shape == (count, 4)
    assert tensors.attn_map.shape == (count, count)
    keep, weighted = reference.fused_attn_nms_scored(*tensors, iou_threshold=nms.THRESHOLD)
    share = float(keep.float().mean())
    low, high = {"clusters": (0.1, 0.4), "dense": (0.02, 0.2), "uniform": (0.5, 0.95)}.get(
        density, (0.5, 0.5)
    )
    assert low <= share <= high
    assert nms.checked(density, tensors) == int(keep.sum())
    if density == "chain":
        assert reference.visiting_order(weighted) == list(range(count))
        assert keep.tolist() == [True, False] * (count // 2)
    if density == "chain scrambled":
        assert reference.visiting_order(weighted) != list(range(count))


def test_the_loop_keeps_what_the_reference_keeps():
    tensors = nms.problem("clusters", 200, nms.attention(200))
    weighted = tensors.scores * (tensors.attn_map @ tensors.scores)
    assert torch.equal(nms.loop(*tensors), reference.greedy_nms(tensors.boxes, weighted, 0.5))


def test_a_wrong_operator_is_not_timed(monkeypatch):
    def inverted(*tensors, **options):
        return ~torch.ops.jetops.fused_attn_nms(*tensors, **options)

    monkeypatch.setattr(jetops, "fused_attn_nms", inverted)
    with pytest.raises(RuntimeError, match="wrong for 100 boxes of a case"):
        nms.checked("a case", nms.problem("uniform", 100, nms.attention(100)))


# ---------------------------------------------------------------- work and roofline


def test_bytes_are_those_of_inputs_and_outputs():
    assert work.gelu(2**20, 2, "none").bytes == 2 * 2**21
    assert work.gelu_backward(2**20, 4, "tanh").bytes == 3 * 2**22
    assert work.bias_gelu_dropout(10, 8, 4, "tanh").bytes == (2 * 80 + 8) * 4
    assert work.bias_gelu_dropout_both(10, 8, 4, "tanh").bytes == (2 * 80 + 8 + 3 * 80 + 16) * 4
    assert work.nms(2000, 4).bytes == 2000 * 2000 * 4 + 2000 * 21


def test_an_fma_is_two_operations_and_one_instruction():
    assert work.Tally(3, 4).times(10, 80) == work.Work(80, 100, 70)
    one = work.gelu(1, 4, "tanh")
    assert (one.operations, one.instructions) == (10, 9)
    # 63 instructions of random bits for 8 elements of 16 bits, and twice as many an element of 32.
    more = [work.bias_gelu_dropout(1, 1, size, "tanh").operations - 10 - 4 for size in (2, 4)]
    assert more == [work.PHILOX / 8, work.PHILOX / 4]
    assert work.nms(2000, 4).operations == pytest.approx(
        2 * 2000**2 + 15 * 2000 * 1999 / 2 + 2000 * math.log2(2000) + 2000
    )


@pytest.mark.parametrize(
    ("us", "instructions", "bound"),
    [
        (1000.0, 1e9, "memory-bound"),  # 4 TB/s of 4
        (1600.0, 1e9, "memory-bound"),  # 2.5 of 4
        (1000.0, 29e9, "memory-bound"),  # the nearer of two near ones
        (2000.0, 50e9, "compute-bound"),  # 25 of 30 tera-instructions a second
        (2000.0, 1e9, "latency-bound"),
        (3.0, 1e6, "launch-bound"),
    ],
)
def test_a_verdict_names_the_ceiling_that_is_near(us, instructions, bound):
    size = 4_000_000_000 if us > 100 else 1000
    made = row(
        "gelu", "c", "jetops", "replay", us, bytes=size, operations=2e9,
        instructions=instructions, op="gelu",
    )  # fmt: skip
    verdict = roofline.judge(made, CEILINGS)
    assert verdict.bound == bound
    assert verdict.gbps == pytest.approx(size / us / 1e3)
    assert verdict.memory_share == pytest.approx(size / us / 1e3 / 4000)
    assert verdict.compute_share == pytest.approx(instructions / us / 1e3 / 30000)
    assert verdict.intensity == pytest.approx(2e9 / size)


def test_on_a_cpu_what_is_near_no_ceiling_is_called_neither():
    made = row("g", "c", "jetops", "clock", 1e6, bytes=1, operations=1, instructions=1, op="o")
    assert roofline.judge(made, dict(CEILINGS, smallest_us=None)).bound == "neither"


def test_the_largest_case_with_a_cold_cache_is_judged():
    def judged(case, mode, size, op="gelu", us=1.0):
        return row(
            "gelu", case, "jetops", mode, us, bytes=size, operations=1, instructions=1, op=op
        )

    rows = [
        judged("small", "replay", 10),
        judged("large", "replay", 20),
        judged("large", "replay cold", 20),
        judged("large", "plain", 20),
        judged("larger", "replay", 30, us=None),
        judged("theirs", "replay", 99, op=""),
    ]
    (found,) = roofline.judged_rows(rows)
    assert (found["case"], found["mode"]) == ("large", "replay cold")
    assert [one.case for one in roofline.verdicts(result_of(rows))] == ["large"]
    assert roofline.verdicts(result_of(rows, ceilings={})) == []


# ---------------------------------------------------------------- goals


def nms_rows(separate, replay, plain):
    rows = []
    for density in goals.NMS_DENSITIES:
        for count in goals.NMS_COUNTS:
            case = f"{density} {count}"
            rows += [
                row("nms", case, "separate kernels", "plain", separate),
                row("nms", case, "jetops", "replay", replay),
                row("nms", case, "jetops", "plain", plain),
            ]
    return rows


def outcomes_about(rows, words):
    return [one for one in goals.outcomes(rows) if words in one.goal]


def test_nms_is_compared_by_its_worst_case():
    rows = nms_rows(separate=400.0, replay=15.0, plain=25.0)
    found = outcomes_about(rows, "fused_attn_nms, N=2000")
    assert [one.met for one in found] == [True, False, True]
    assert [one.measured for one in found] == ["26.67 times", "16.00 times", "15.00 us"]
    rows += [row("nms", "dense 2000", "jetops", "replay", 30.0)]  # the last row of a name counts
    found = outcomes_about(rows, "fused_attn_nms, N=2000")
    assert [one.met for one in found] == [False, False, False]
    assert found[2].where == "dense 2000, the worst of 3"
    assert [one.met for one in outcomes_about(rows, "N=500 to 8000")] == [True, True]


def test_what_was_not_measured_is_no_goal_reached():
    assert {one.met for one in goals.outcomes([])} == {None}
    rows = [one for one in nms_rows(400.0, 10.0, 10.0) if one["case"] == "uniform 500"]
    (first, _) = outcomes_about(rows, "N=500 to 8000")
    assert (first.met, first.where) == (True, "uniform 500, the worst of 1 of 15")
    assert {one.met for one in outcomes_about(rows, "N=2000")} == {None}


def test_slower_within_the_spread_is_not_slower():
    def rows_of(ours):
        return [
            row("gelu", "float32 1024", "F.gelu none", "replay", 10.0),
            row("gelu", "float32 1024", "jetops none", "replay", ours),
        ]

    (within, _) = outcomes_about(rows_of(10.3), "never slower")
    assert (within.met, within.measured) == (True, "1.03 times F.gelu's time")
    (beyond, backward) = outcomes_about(rows_of(10.6), "never slower")
    assert beyond.met is False
    assert beyond.where == "float32 1024 none, the worst of 1; slower: float32 1024 none"
    assert backward.met is None


def test_dropout_is_compared_with_the_quickest_and_never_with_eager_alone():
    case = "bfloat16 8192x16384 tanh"
    rows = [
        row("dropout", case, "eager", "replay", 700.0),
        row("dropout", case, "jetops", "replay", 140.0),
        row("dropout", case, "copy", "replay", 125.0),
    ]
    (first, _) = outcomes_about(rows, "bias_gelu_dropout forward, bfloat16 8192x16384: at least")
    assert first.met is None
    rows += [
        row("dropout", case, "compile", "replay", 900.0),
        row("dropout", case, "compile max-autotune", "replay", 500.0),
    ]
    (first, _) = outcomes_about(rows, "bias_gelu_dropout forward, bfloat16 8192x16384: at least")
    assert (first.met, first.measured) == (False, "3.57 times")
    assert "at the speed of a copy of the same bytes it would be 4.00" in first.where
    (copied,) = outcomes_about(rows, "within 1.3")
    assert (copied.met, copied.measured) == (True, "1.12 times the copy")


def test_16_bit_gelu_has_its_bars():
    rows = []
    for dtype in ("float16", "bfloat16"):
        for size in goals.LARGE_GELU_SIZES:
            case = f"{dtype} {size}"
            rows += [
                row("gelu", case, "F.gelu none", "replay", 130.0),
                row("gelu", case, "jetops none", "replay", 100.0),
                row("gelu", case, "F.gelu tanh", "replay", 107.0),
                row("gelu", case, "jetops tanh", "replay", 100.0),
                row("gelu", case, "copy", "replay", 95.0),
            ]
    found = outcomes_about(rows, "16 bits")
    assert [(one.measured, one.met) for one in found] == [
        ("1.30 times", True),
        ("1.07 times", False),
        ("1.05 times the copy", True),
    ]


def test_the_cpu_has_its_bar():
    rows = [
        row("cpu-nms", "dense 2000", "Python reference", "clock", 5000.0),
        row("cpu-nms", "dense 2000", "jetops", "clock", 90.0),
    ]
    (found,) = outcomes_about(rows, "on the CPU")
    assert (found.met, found.measured) == (True, "55.56 times")


# ---------------------------------------------------------------- results


def test_results_are_read_as_they_were_written(tmp_path):
    made = result_of(
        [row("nms", "a", "copy", "replay", 1.5), row("nms", "b", "copy", "plain", None)]
    )
    results.save(str(tmp_path), made)
    assert results.read(str(tmp_path / "bench.json")) == made
    lines = (tmp_path / "bench.json").read_text().splitlines()
    assert sum('"contender"' in line for line in lines) == 2
    assert os.listdir(str(tmp_path)) == ["bench.json"]


def test_a_group_that_runs_again_replaces_its_own_rows(tmp_path):
    machine = {"device": "A GPU"}
    first = results.begin(str(tmp_path), machine, only_some=True)
    first = results.with_group(
        first, "gelu", [row("gelu", "float32 1", "copy", "replay", 1.0)], about(1)
    )
    first = results.with_group(first, "nms", [row("nms", "a", "copy", "replay", 2.0)], about(2))
    results.save(str(tmp_path), first)
    again = results.begin(str(tmp_path), machine, only_some=True)
    again = results.with_group(
        again, "gelu", [row("gelu", "float32 2", "copy", "replay", 3.0)], about(3)
    )
    assert [(one["group"], one["case"]) for one in again["rows"]] == [
        ("nms", "a"),
        ("gelu", "float32 2"),
    ]
    assert again["groups"] == {"gelu": about(3), "nms": about(2)}
    assert results.begin(str(tmp_path), machine, only_some=False)["rows"] == []


def test_groups_of_two_machines_are_not_mixed(tmp_path):
    results.save(str(tmp_path), result_of([]))
    with pytest.raises(results.ResultsError, match="device A GPU there and another here"):
        results.begin(str(tmp_path), {"device": "another"}, only_some=True)


def test_the_results_of_this_repository_can_be_read():
    path = os.path.join(os.path.dirname(__file__), "../../docs/benchmarks/h200/bench.json")
    if not os.path.exists(path):
        pytest.skip("not in a checkout")
    rows = results.read(path)["rows"]
    assert len(rows) > 100
    for name, group in program.GROUPS.items():
        measured = {one["contender"] for one in rows if one["group"] == name}
        assert set(group.CONTENDERS) <= measured, name


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[1]", "it has to be an object")],
)
def test_what_is_no_results_is_told(tmp_path, text, said, capsys):
    path = tmp_path / "some.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(results.ResultsError, match=said):
        results.read(str(path))
    assert program.main(["--from", str(path)]) == program.EXIT_MISUSED
    assert said in capsys.readouterr().err


def damaged(path, value):
    """The file's text with ``value`` at a path of keys, or without the last of them."""
    made = json.loads(json.dumps(everything()))
    *above, last = path
    place = made
    for key in above:
        place = place[key]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return json.dumps(made)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ((["machine"], None), "machine has to be an object"),
        ((["machine"], KeyError), "it has no machine"),
        ((["machine", "device"], KeyError), "machine has no device"),
        ((["machine", "device"], None), "machine.device has to be text"),
        ((["machine", "cores"], [1]), "machine.cores has to be text"),
        ((["ceilings"], KeyError), "it has no ceilings"),
        ((["ceilings"], []), "ceilings has to be an object"),
        ((["ceilings", "cuda"], 1), "ceilings.cuda has to be an object"),
        ((["ceilings", "cuda", "copy_gbps"], 0), "ceilings.cuda.copy_gbps has to be a number"),
        ((["ceilings", "cuda", "fma_gflops"], 0.0), "ceilings.cuda.fma_gflops has to be"),
        ((["ceilings", "cuda", "fma_gflops"], 5e-324), "ceilings.cuda.fma_gflops has to be"),
        ((["ceilings", "cuda", "cached_gbps"], "x"), "ceilings.cuda.cached_gbps has to be"),
        ((["ceilings", "cuda", "fma_how"], KeyError), "ceilings.cuda has no fma_how"),
        ((["groups"], [1]), "groups has to be an object"),
        ((["groups", "nms"], None), "groups.nms has to be an object"),
        ((["groups", "nms", "quick"], "no"), "groups.nms.quick has to be true or false"),
        ((["groups", "nms", "remarks"], "a"), "groups.nms.remarks has to be a list"),
        ((["groups", "nms", "about", 0], 3), "groups.nms.about[0] has to be text"),
        ((["groups", "nms", "failed"], 3), "groups.nms.failed has to be text"),
        ((["rows"], {}), "rows has to be a list"),
        ((["rows", 2], "a row"), "rows[2] has to be an object"),
        ((["rows", 2, "us"], KeyError), "rows[2] has no us"),
        ((["rows", 2, "us"], "3"), "rows[2]: us, low and high have to be numbers"),
        ((["rows", 2, "us"], True), "rows[2]: us, low and high have to be numbers"),
        ((["rows", 2, "low"], None), "rows[2]: us, low and high have to be numbers"),
        ((["rows", 2, "high"], 10**400), "rows[2]: us, low and high have to be numbers"),
        ((["rows", 2, "mode"], ["replay"]), "rows[2].mode has to be text"),
        ((["rows", 2, "note"], "\ud800"), "rows[2].note has half of a character"),
        ((["rows", 2, "bytes"], -1), "rows[2].bytes has to be a number of at least 0"),
        ((["rows", 2, "op"], "nms"), "rows[2]: op is there, so bytes, operations and"),
        ((["rows", 47, "case"], "float32 many"), "rows[47].case is none of the group gelu"),
        ((["rows", 2, "group"], "dropout"), "rows[2].case is none of the group dropout"),
        ((["rows", 2, "us"], float("nan")), "NaN is no number there"),
    ],
)
@pytest.mark.parametrize("option", ["--from", "--compare", "--only"])
def test_damaged_results_are_told_with_their_place_before_anything_is_measured(
    text, said, option, tmp_path, capsys, monkeypatch
):
    refuse_to_measure(monkeypatch)
    path = tmp_path / "bench.json"
    path.write_text(damaged(*text))
    words = {
        "--from": ["--from", str(path)],
        "--compare": ["--device", "cpu", "--compare", str(path)],
        "--only": ["--device", "cpu", "--only", "gelu"],
    }[option]
    assert program.main(words + ["--out", str(tmp_path)]) == program.EXIT_MISUSED
    err = capsys.readouterr().err
    assert said in err
    assert str(path) in err
    assert len(err.splitlines()) == 1
    assert os.listdir(str(tmp_path)) == ["bench.json"]


def test_deep_nesting_is_told(tmp_path, capsys):
    path = tmp_path / "deep.json"
    path.write_text("[" * 200000)
    assert program.main(["--from", str(path)]) == program.EXIT_MISUSED
    assert f"{path} is nested too deeply" in capsys.readouterr().err


# ---------------------------------------------------------------- page, comparison, plots


def everything():
    """Rows of all groups, as a GPU gives them."""
    todo = {"bytes": 10**6, "operations": 3e6, "instructions": 2e6}
    rows = nms_rows(400.0, 15.0, 25.0)
    rows += [row("nms", "clusters 2000", "Python loop", "plain", 1e5)]
    rows += [row("nms", "dense 2000", "Python loop", "plain", None, note="out of memory")]
    for case in ("float32 1024", "float32 16777216", "float32 16777216 backward"):
        for name in ("F.gelu none", "jetops none", "F.gelu tanh", "jetops tanh", "copy"):
            rows.append(row("gelu", case, name, "replay", 12.345, op="gelu " + name, **todo))
    for case in ("bfloat16 8192x16384 tanh", "bfloat16 8192x16384 tanh fwd+bwd"):
        for name in ("eager", "compile", "jetops", "copy"):
            rows.append(row("dropout", case, name, "replay", 123.0))
    rows += [row("ingest", "1920x1080x3 frame", name, "clock", 1500.0) for name in ("a", "b, c")]
    rows += [
        row("cpu-nms", "dense 500", name, "clock", 90.0) for name in ("jetops", "Python reference")
    ]
    groups = {
        "nms": {"quick": True, "about": ["What nms is."], "remarks": ["kept of 2000 boxes: 345"]}
    }
    return result_of(rows, groups=groups)


def test_the_page_has_tables_goals_verdicts_and_reasons():
    page = report.page(everything(), ["nms.png", "roofline.png"])
    assert page.startswith("# jetops on A GPU\n")
    assert "With --quick, so fewer cases and samples: nms." in page
    assert (
        "| fused_attn_nms, N=2000, all but chains: at most 25 us by graph replay | 15.00 us |"
        in page
    )
    assert "a copy by a kernel moves 4000 GB/s" in page
    assert "fp32 arithmetic is 60.00 TFLOP/s by a kernel of FMAs" in page
    assert "| gelu jetops none | float32 1024, replay | 12.3 | 3.0 | 81 GB/s | 2% | 1% |" in page
    assert "What nms is." in page
    assert "| clusters 2000 | 400.0 | 25.0 | 100000 |" in page
    assert "| dense 2000 | 400.0 | 25.0 | cannot |" in page
    assert "- Python loop, plain, cannot: out of memory (dense 2000)" in page
    assert "- kept of 2000 boxes: 345" in page
    assert "![nms](nms.png)" in page
    assert "![roofline](roofline.png)" in page
    assert "gelu.png" not in page
    assert "goals are about cases that these results do not have" in page


@pytest.mark.parametrize(
    ("wide", "said"), [(2, ""), (3, "3 of 10 times have a spread of more than")]
)
def test_times_that_vary_widely_are_told_at_the_top_and_on_stderr(wide, said, tmp_path, capsys):
    rows = [row("gelu", f"float32 {1 + i}", "jetops none", "clock", 10.0) for i in range(10)]
    for one in rows[:wide]:
        one.update(low=8.0, high=13.1)
    for one in rows[wide:]:
        one.update(low=8.0, high=13.0)
    rows.append(row("gelu", "float32 99", "jetops none", "clock", None, note="out of memory"))
    found = result_of(rows)
    assert report.noise(found)[: len(said)] == said
    assert bool(report.noise(found)) == bool(said)
    results.save(str(tmp_path), found)
    assert program.main(["--from", str(tmp_path / "bench.json")]) == 1
    out, err = capsys.readouterr()
    if said:
        assert f"**{said}" in out.partition("## ")[0]
        assert f"python -m jetops.bench: warning: {said}" in err
    else:
        assert "have a spread of" not in out + err


def test_a_page_without_rows_is_no_noise():
    assert report.noise(result_of([])) == ""


def test_a_comparison_shows_what_left_the_spread_largest_first():
    old = result_of(
        [
            row("gelu", "a", "jetops", "replay", 10.0),
            row("gelu", "b", "jetops", "replay", 10.0),
            row("gelu", "c", "jetops", "replay", 10.0),
            row("gelu", "d", "jetops", "replay", 10.0),
            row("gelu", "e", "jetops", "replay", float("nan")),
        ]
    )
    new = result_of(
        [
            row("gelu", "a", "jetops", "replay", 9.0),
            row("gelu", "b", "jetops", "replay", 40.0),
            row("gelu", "c", "jetops", "replay", 10.2),
            row("gelu", "d", "jetops", "replay", None, note="cannot be captured"),
            row("gelu", "e", "jetops", "replay", 1.0),
            row("gelu", "f", "jetops", "replay", 1.0),
        ]
    )
    assert report.comparison(old, new).splitlines() == [
        "3 times compared, 2 changed beyond the spread of both runs",
        "now it cannot: gelu d jetops replay (cannot be captured)",
        " 4.00x        10.0 ->       40.0 us  gelu b jetops replay",
        " 0.90x        10.0 ->        9.0 us  gelu a jetops replay",
    ]
    other = dict(old, machine={"device": "B", "torch": "2.11"})
    first = report.comparison(other, new).splitlines()[0]
    assert first == "not of the same machine and versions: device B -> A GPU"
    assert "## Changes\n\n```\nfirst\n```" in report.page(new, [], "first")


def test_plots_are_small_and_the_same_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    names = plots.draw(everything(), str(tmp_path / "one"))
    assert sorted(names) == [
        "cpu-nms.png", "dropout.png", "gelu.png", "ingest.png", "nms.png", "roofline.png",
    ]  # fmt: skip
    assert names == plots.draw(everything(), str(tmp_path / "two"))
    for name in names:
        data = (tmp_path / "one" / name).read_bytes()
        assert data[:8] == b"\x89PNG\r\n\x1a\n"
        width, height = struct.unpack(">II", data[16:24])
        assert width > 400
        assert height > 200
        assert len(data) < 200 * 1024
        assert data == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(
    ("machine", "place"),
    [
        ({"device": "A GPU", "processor": "A CPU", "capability": "9.0"}, "A CPU"),
        ({"device": "A GPU", "capability": "9.0"}, "the CPU beside A GPU"),
        ({"device": "A CPU"}, "A CPU"),
    ],
)
def test_what_ran_on_the_cpu_is_called_so(machine, place, monkeypatch):
    pytest.importorskip("matplotlib")
    figures = {}
    monkeypatch.setattr(plots, "_save", lambda figure, _, name: figures.update({name: figure}))
    made = everything()
    judged = {"device": "cpu", "bytes": 10, "operations": 24.0, "instructions": 9.0, "op": "nms"}
    made["rows"].append(row("cpu-nms", "dense 500", "jetops", "clock", 90.0, **judged))
    made.update(machine=machine, ceilings={"cuda": CEILINGS, "cpu": CEILINGS})
    plots.draw(made, "nowhere")
    titles = [axes.get_title() for axes in figures["roofline.png"].axes]
    assert titles == [machine["device"], place]
    assert figures["cpu-nms.png"]._suptitle.get_text() == f"cpu-nms on {place}"
    assert figures["gelu.png"]._suptitle.get_text() == f"gelu on {machine['device']}"
    if "processor" in machine:
        assert "processor A CPU" in report.page(made, []).splitlines()[2]


def test_a_roofline_ends_a_little_beyond_what_is_in_it(monkeypatch):
    pytest.importorskip("matplotlib")
    figures = {}
    monkeypatch.setattr(plots, "_save", lambda figure, _, name: figures.update({name: figure}))
    made = everything()
    plots.draw(made, "nowhere")
    ridge = CEILINGS["fma_gflops"] / CEILINGS["copy_gbps"]  # 15; the points are at 3
    assert ridge < figures["roofline.png"].axes[0].get_xlim()[1] <= 2 * ridge
    for one in made["rows"]:
        if one["op"]:
            one.update(operations=50.0 * one["bytes"])
    plots.draw(made, "nowhere")
    assert 50 < figures["roofline.png"].axes[0].get_xlim()[1] <= 100


def test_page_and_plots_are_made_again_from_results(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    results.save(str(tmp_path), everything())
    before = (tmp_path / "bench.json").read_bytes()
    assert program.main(["--from", str(tmp_path / "bench.json")]) == 0
    assert (tmp_path / "bench.json").read_bytes() == before
    assert "![gelu](gelu.png)" in (tmp_path / "bench.md").read_text()
    assert (tmp_path / "gelu.png").exists()
    told = capsys.readouterr()
    assert told.out.startswith("# jetops on A GPU")
    written = sorted(name for name in os.listdir(str(tmp_path)) if name != "bench.json")
    assert told.err.splitlines()[-1] == f"written to {tmp_path}: {', '.join(written)}"


@pytest.mark.parametrize("out", [[], ["--out", "."], ["--out", "there"]])
def test_a_page_made_again_lies_beside_its_results_or_in_the_named_folder(
    out, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plots, "available", lambda: False)
    results.save("here", everything())
    assert program.main(["--from", os.path.join("here", "bench.json")] + out) == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("bench.md")] == [
        os.path.normpath(os.path.join((out or ["", "here"])[1], "bench.md"))
    ]


@pytest.mark.parametrize("words", [["--only", "gelu"], ["--quick"], ["--device", "cpu"]])
def test_what_measures_nothing_takes_no_options_of_measuring(words, tmp_path, capsys):
    results.save(str(tmp_path), everything())
    with pytest.raises(SystemExit) as left:
        program.main(["--from", str(tmp_path / "bench.json")] + words)
    assert left.value.code == program.EXIT_MISUSED
    said = f"{words[0]} says how to measure, and --from measures nothing"
    assert said in capsys.readouterr().err
    assert os.listdir(str(tmp_path)) == ["bench.json"]


def test_without_matplotlib_the_page_is_written_and_one_sentence_says_what_is_missing(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(plots, "available", lambda: False)
    results.save(str(tmp_path), everything())
    assert program.main(["--from", str(tmp_path / "bench.json")]) == 0
    assert sorted(os.listdir(str(tmp_path))) == ["bench.json", "bench.md"]
    assert "![" not in (tmp_path / "bench.md").read_text()
    said = capsys.readouterr().err
    assert "matplotlib is not installed, so the plots are left out" in said
    assert f"`python -m jetops.bench --from {tmp_path / 'bench.json'}` draws them" in said


# ---------------------------------------------------------------- the program


@pytest.fixture
def small(monkeypatch):
    """The same program with cases that take no time."""
    monkeypatch.setattr(cpu_nms, "QUICK_COUNTS", (60,))
    monkeypatch.setattr(nms, "QUICK_COUNTS", (60,))
    monkeypatch.setattr(gelu, "SIZES", (2**10, 2**20))
    monkeypatch.setattr(ingest, "SIZE", (256, 256, 3))
    monkeypatch.setattr(ceilings, "CPU_COPIED_BYTES", 2**20)
    monkeypatch.setattr(ceilings, "CPU_MATRIX_SIDE", 64)


def test_groups_can_run_apart_into_one_folder(small, tmp_path, capsys):
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path)]
    (tmp_path / "notes.txt").write_text("somebody's own")
    assert program.main(words + ["--only", "cpu-nms"]) == 0
    drawn = "bench.md, cpu-nms.png" if plots.available() else "bench.md"
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"written to {tmp_path}: bench.json, {drawn}"
    assert program.main(words + ["--only", "gelu"]) == 0
    found = json.loads((tmp_path / "bench.json").read_text())
    assert {one["group"] for one in found["rows"]} == {"cpu-nms", "gelu"}
    assert set(found["groups"]) == {"cpu-nms", "gelu"}
    assert found["machine"]["torch"] == torch.__version__
    assert found["ceilings"]["cpu"]["copy_gbps"] > 0
    assert found["ceilings"]["cpu"]["fma_gflops"] > 0
    for one in found["rows"]:
        assert one["us"] is None or one["low"] <= one["us"] <= one["high"]
    ours = [one for one in found["rows"] if one["contender"].startswith("jetops")]
    assert ours
    assert all(one["us"] > 0 for one in ours)
    page = (tmp_path / "bench.md").read_text()
    assert "### gelu, clock" in page
    assert "### cpu-nms, clock" in page
    said = capsys.readouterr().err
    assert "[1/1] gelu" in said


def test_only_contenders_that_were_measured_are_explained(small, tmp_path):
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path)]
    assert program.main(words + ["--only", "ingest, dropout,"]) == 0
    page = (tmp_path / "bench.md").read_text()
    assert "\n*one after another* takes each frame" in page
    assert "; *FrameIngest* copies the next frames" in page
    assert "\n*jetops* draws a new seed in each call" in page
    for elsewhere in ("pinned", "host copy", "*compile", "cudagraphs"):
        assert elsewhere not in page
    assert "- torch.compile is left out with --quick" in page


@pytest.mark.skipif(not hasattr(torch, "compile"), reason="another remark says that there is none")
def test_it_is_told_why_torch_compile_is_left_out_of_some_cases():
    bench = measure.Bench(CPU)
    bench.device = torch.device("cuda")
    assert "compile" in dropout._modes_of(bench, torch.float32, dropout.LARGE, "none")
    assert "compile" in dropout._modes_of(bench, torch.bfloat16, (1024, 4096), "tanh")
    assert bench.remarks == []
    for form in ("tanh", "none"):
        assert dropout._modes_of(bench, torch.float32, (1024, 4096), form) == {}
    (said,) = bench.remarks
    assert said.startswith("torch.compile takes seconds to compile each case")
    assert "there for all of 8192x16384 and for bfloat16 tanh" in said


def test_a_gpus_results_name_the_processor_as_well(monkeypatch):
    class Properties:
        name, major, minor, multi_processor_count = "A GPU", 9, 0, 132

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Properties)
    found = program.machine(torch.device("cuda"))
    here = program.machine(CPU)
    assert (found["device"], found["processor"]) == ("A GPU", here["device"])
    assert "processor" not in here


@pytest.mark.parametrize("only", [["--only", "gelu"], ["--only", "gelu,cpu-nms"]])
def test_a_run_is_compared_with_what_its_folder_held_before(small, tmp_path, capsys, only):
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path)]
    assert program.main(words + ["--only", "gelu"]) == 0
    path = tmp_path / "bench.json"
    past = results.read(str(path))
    for one in past["rows"]:
        one.update(us=one["us"] * 1e6, low=one["low"] * 1e6, high=one["high"] * 1e6)
    results.save(str(tmp_path), past)
    capsys.readouterr()
    assert program.main(words + only + ["--compare", str(path)]) == 0
    count = len(past["rows"])
    said = f"{count} times compared, {count} changed beyond the spread of both runs"
    assert said in capsys.readouterr().out


INTERRUPTED = """
import os, signal, sys
from jetops.bench import __main__ as program
from jetops.bench import ceilings, cpu_nms, gelu

ceilings.CPU_COPIED_BYTES, ceilings.CPU_MATRIX_SIDE = 2**20, 64
cpu_nms.QUICK_COUNTS = (60,)
signal.signal(signal.SIGINT, signal.default_int_handler)
gelu.run = lambda bench: os.kill(os.getpid(), signal.SIGINT)
sys.exit(program.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("only", "before", "said"),
    [
        ("cpu-nms,gelu", [], "cpu-nms of this run is in {}"),
        ("gelu,cpu-nms", [], "nothing was saved"),
        ("gelu,cpu-nms", ["dropout"], "{} is as it was"),
    ],
)
def test_ctrl_c_is_no_traceback_and_leaves_the_groups_that_ended(tmp_path, only, before, said):
    path = tmp_path / "bench.json"
    if before:
        groups = {name: about(1) for name in before}
        results.save(str(tmp_path), result_of([], machine=program.machine(CPU), groups=groups))
    words = ["--device", "cpu", "--quick", "--only", only, "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED] + words,
        check=False,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    told = done.stderr.decode()
    assert done.returncode == 130, told
    assert told.splitlines()[-1].endswith("interrupted; " + said.format(path))
    assert "Traceback" not in told
    ended = before + (["cpu-nms"] if only.startswith("cpu-nms") else [])
    assert os.listdir(str(tmp_path)) == (["bench.json"] if ended else [])
    if ended:
        assert list(results.read(str(path))["groups"]) == ended


def test_a_group_that_breaks_off_leaves_the_others_and_fails_the_run(
    small, tmp_path, capsys, monkeypatch
):
    def broken(bench):
        bench.add("gelu", "float32 1024", [measure.Contender("copy", lambda: None)], [])
        raise RuntimeError("wrong for 3 boxes")

    monkeypatch.setattr(gelu, "run", broken)
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path), "--only", "gelu,cpu-nms"]
    assert program.main(words) == program.EXIT_FAILED
    found = json.loads((tmp_path / "bench.json").read_text())
    assert found["groups"]["gelu"]["failed"] == "wrong for 3 boxes"
    assert {one["group"] for one in found["rows"]} == {"gelu", "cpu-nms"}
    assert "**broken off**: wrong for 3 boxes" in (tmp_path / "bench.md").read_text()
    assert "error: gelu broke off: wrong for 3 boxes" in capsys.readouterr().err


def test_an_operator_of_ours_that_cannot_run_fails_the_run():
    cannot = row("gelu", "a", "jetops none", "replay", None, note="cannot be captured")
    theirs = row("gelu", "a", "F.gelu none", "replay", None, note="cannot either")
    assert program.failures(result_of([theirs])) == []
    assert program.failures(result_of([theirs, cannot])) == [
        "gelu, a, jetops none, replay: cannot be captured"
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "cpu", "--only", "nms"], "no group nms on cpu"),
        (["--device", "cpu", "--only", "gelu,nonsense"], "no group nonsense on cpu"),
        (["--device", "cpu", "--only", " , "], "--only is empty; leave it out or give a value"),
        (["--device", "nonsense"], "no device nonsense"),
        (["--device", "meta"], "no device meta; it is cuda, cuda:0, ... or cpu"),
        (["--device", "mps:0"], "no device mps:0"),
        (["--device", "cpu:1"], "no device cpu:1"),
        (["--device", "cuda:"], "no device cuda:"),
    ],
)
def test_a_wrong_command_line_is_told(words, said, capsys):
    with pytest.raises(SystemExit) as left:
        program.main(words)
    assert left.value.code == program.EXIT_MISUSED
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "count", "said"),
    [
        ("cuda", 0, "torch sees no GPU here; --device cpu measures"),
        ("cuda:2", 2, "no device cuda:2; GPUs that torch sees here: 2"),
    ],
)
def test_a_gpu_that_is_not_there_is_told(word, count, said, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(SystemExit) as left:
        program.main(["--device", word])
    assert left.value.code == program.EXIT_MISUSED
    assert said in capsys.readouterr().err


def refuse_to_measure(monkeypatch):
    def measuring(bench):
        raise AssertionError("it is measuring")

    monkeypatch.setattr(ceilings, "measure", measuring)


def test_a_folder_that_cannot_be_written_to_is_told_before_anything_is_measured(
    tmp_path, capsys, monkeypatch
):
    refuse_to_measure(monkeypatch)
    (tmp_path / "file").write_text("")
    (tmp_path / "full/bench.json").mkdir(parents=True)
    for out, said in (
        (str(tmp_path / "file"), "File exists"),
        (str(tmp_path / "file/inside"), "Not a directory"),
        ("/proc/results", "No such file"),
        (str(tmp_path / "full"), "bench.json is a folder"),
    ):
        assert program.main(["--device", "cpu", "--out", out]) == program.EXIT_MISUSED
        err = capsys.readouterr().err
        assert said in err
        assert "--out" in err
        assert "Traceback" not in err
    assert os.listdir(str(tmp_path / "full")) == ["bench.json"]


def test_a_disk_without_room_is_told_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    refuse_to_measure(monkeypatch)
    # A file that takes nothing, as on a full disk, in the place of the one that is tried.
    (tmp_path / "bench.json.part").symlink_to("/dev/full")
    words = ["--device", "cpu", "--out", str(tmp_path)]
    assert program.main(words) == program.EXIT_MISUSED
    assert f"nothing can be written to {tmp_path}: No space left" in capsys.readouterr().err
    assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("name", ["bench.md", "cpu-nms.png", "bench.json"])
def test_what_cannot_be_written_later_is_one_sentence_and_leaves_no_part(
    small, tmp_path, capsys, monkeypatch, name
):
    if name.endswith("png"):
        pytest.importorskip("matplotlib")
    real = os.replace

    def full(part, path):
        if os.path.basename(path) == name:
            raise OSError(28, "No space left on device")
        real(part, path)

    monkeypatch.setattr(os, "replace", full)
    words = ["--device", "cpu", "--quick", "--out", str(tmp_path), "--only", "cpu-nms"]
    assert program.main(words) == program.EXIT_FAILED
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"error: {tmp_path / name} cannot be written: No space left on device" in said
    assert "make room there or name another folder with --out" in said
    assert ("nothing of this run was saved" in said) == (name == "bench.json")
    assert ("--from" in said) == (name != "bench.json")
    assert [one for one in os.listdir(str(tmp_path)) if one.endswith(".part")] == []
    assert (tmp_path / "bench.json").exists() == (name != "bench.json")


@pytest.mark.parametrize("option", ["--device", "--only", "--out", "--compare", "--from"])
@pytest.mark.parametrize("value", ["", " "])
def test_an_empty_option_is_not_one_left_out(option, value, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        program.main([option, value])
    assert left.value.code == program.EXIT_MISUSED
    assert f"{option} is empty; leave it out or give a value" in capsys.readouterr().err
    assert os.listdir(str(tmp_path)) == []


def test_a_wrong_comparison_is_told_before_anything_is_measured(tmp_path, capsys):
    words = ["--device", "cpu", "--compare", str(tmp_path / "no.json"), "--out", str(tmp_path)]
    assert program.main(words) == program.EXIT_MISUSED
    assert "no.json cannot be read" in capsys.readouterr().err
    assert os.listdir(str(tmp_path)) == []


# ---------------------------------------------------------------- on a GPU


def test_every_mode_times_work_on_a_gpu(cuda_device):
    device = torch.device(cuda_device)
    timer = timing.Timer(device, samples=5, seconds=0.2)
    x = torch.rand(2**25, device=device)
    functions = {"small": lambda: torch.neg(x[:1024]), "large": lambda: torch.neg(x)}
    for mode in timing.MODES:
        found = timer.time_all(functions, mode)
        assert found["small"].median < found["large"].median, mode
        assert found["large"].median > 0


def test_the_ceilings_of_a_gpu_are_believable(cuda_device):
    found = ceilings.measure(measure.Bench(torch.device(cuda_device), quick=True))
    assert 5 < found.copy_gbps < 20000
    assert 100 < found.fma_gflops < 500000
    assert 0.1 < found.smallest_us < 100


def test_the_nms_group_runs_on_a_gpu(cuda_device, small, monkeypatch):
    bench = measure.Bench(torch.device(cuda_device), quick=True)
    nms.run(bench)
    found = {(one.case, one.contender, one.mode): one for one in bench.rows}
    assert found["clusters 60", "jetops", "replay"].us > 0
    assert found["chain 60", "jetops", "replay cold"].us is not None
    assert (
        found["clusters 60", "Python loop", "plain"].us > found["clusters 60", "jetops", "plain"].us
    )
