"""``python -m jetops.selftest``: each operator against its reference, on the CPU and on every GPU.

Prints one JSON object and exits with 0 only if every check passed. ``max_error`` is the largest error
in units of what is allowed, so 1 is the limit; ``mismatches`` counts elements. Small sizes on purpose:
it has to end in seconds under emulation too.
"""

import argparse
import json
import platform
import sys

import torch

import jetops
from jetops import reference

FORMS = ("none", "tanh")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Allowed error of gelu, as (relative, absolute). The relative part is a little over half a unit in
# the last place for the 16-bit types; for float32 it covers the exponential of the far negative
# side. The absolute part is the spacing of the type's subnormals or of what it flushes to zero.
GELU_TOLERANCE = {
    torch.float32: (2e-5, 1e-37),
    torch.float16: (6e-4, 6e-8),
    torch.bfloat16: (4.1e-3, 2e-37),
}


def gelu_inputs(dtype):
    # type: (torch.dtype) -> torch.Tensor
    """Values from all over the range of ``dtype``: limits, NaN, subnormals, both tails, centre."""
    limits = torch.finfo(dtype)
    special = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), limits.max, limits.min]
    special += [limits.tiny, -limits.tiny, limits.tiny / 4, -limits.tiny / 4]
    special += [-5.0, -9.0, -12.5, -14.5, -100.0, -3e4, 5.0, 100.0, 3e4]
    centre = torch.linspace(-6.0, 6.0, 180, dtype=torch.float64)
    return torch.cat([torch.tensor(special, dtype=torch.float64), centre]).to(dtype)


def gelu_error(actual, expected, dtype):
    # type: (torch.Tensor, torch.Tensor, torch.dtype) -> float
    """The largest error, in units of what is allowed; infinite where a NaN or infinity differs."""
    actual = actual.double().cpu()
    relative, absolute = GELU_TOLERANCE[dtype]
    # What the type cannot hold is infinite in it; float16 of 65504 is the largest case here.
    special = ~(torch.isfinite(expected) & torch.isfinite(actual))
    same = (actual == expected) | (torch.isnan(actual) & torch.isnan(expected))
    error = (actual - expected).abs() / (absolute + relative * expected.abs())
    error = torch.where(special, torch.full_like(error, float("inf")), error)
    return float(torch.where(same, torch.zeros_like(error), error).max())


def check_gelu(device, dtype, form):
    # type: (torch.device, torch.dtype, str) -> dict
    x = gelu_inputs(dtype)
    actual = jetops.gelu(x.to(device), approximate=form)
    error = gelu_error(actual, reference.gelu(x, form), dtype)
    ok = error <= 1.0 and actual.dtype == dtype
    return _record("gelu", device, dtype, form, ok, max_error=error if error < 1e30 else "infinite")


DROPOUT_SEED = (3, 4)


def check_dropout(device, dtype, form):
    # type: (torch.device, torch.dtype, str) -> dict
    """Forward and backward; what is dropped has to be zero in the very same places."""
    generator = torch.Generator().manual_seed(7)
    x, grad_y = (torch.randn(5, 24, generator=generator).to(dtype) for _ in range(2))
    bias = torch.randn(24, generator=generator).to(dtype)
    leaves = [x.to(device).requires_grad_(), bias.to(device).requires_grad_()]
    seed = torch.tensor(DROPOUT_SEED, device=device)
    y = jetops.bias_gelu_dropout(leaves[0], leaves[1], 0.3, approximate=form, seed=seed)
    y.backward(grad_y.to(device))
    expected = reference.bias_gelu_dropout(x, bias, DROPOUT_SEED, 0.3, form)
    expected_x, expected_bias = reference.bias_gelu_dropout_backward(
        grad_y, x, bias, DROPOUT_SEED, 0.3, form
    )
    kept, _ = reference.dropout_mask((5, 24), DROPOUT_SEED, 0.3, dtype)
    relative, _ = GELU_TOLERANCE[dtype]
    pairs = [(y, expected), (leaves[0].grad, expected_x), (leaves[1].grad, expected_bias)]
    error = max(_relative_error(actual, wanted) for actual, wanted in pairs) / (1.5 * relative)
    same = not bool(y.detach().cpu()[~kept].any())
    return _record("bias_gelu_dropout", device, dtype, form, same and error <= 1, max_error=error)


def _relative_error(actual, expected):
    # type: (torch.Tensor, torch.Tensor) -> float
    """Relative to the value, or to 0.1 where it is smaller than that."""
    error = (actual.detach().cpu().double() - expected).abs() / expected.abs().clamp(min=0.1)
    return float(error.max())


def nms_case(count, spread, seed):
    # type: (int, float, int) -> tuple
    """``count`` boxes in clusters of ten; the smaller ``spread``, the more they overlap."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand((count + 9) // 10, 2, generator=generator) * 200.0
    corner = centres.repeat_interleave(10, 0)[:count]
    corner = corner + torch.rand(count, 2, generator=generator) * spread
    sides = 20.0 + torch.rand(count, 2, generator=generator) * 10.0
    boxes = torch.cat([corner, corner + sides], 1).contiguous()
    scores = torch.rand(count, generator=generator)
    return boxes, scores, torch.rand(count, count, generator=generator)


def nms_cases():
    # type: () -> list
    chain = torch.arange(60, dtype=torch.float32) * 4.0
    zeros = torch.zeros(60)
    steps = torch.stack([chain, zeros, chain + 10.0, zeros + 10.0], 1).contiguous()
    falling = torch.linspace(1.0, 0.1, 60)
    nan_case = nms_case(70, 10.0, 3)
    nan_case[2][5, 5] = float("nan")
    return [
        ("one box", nms_case(1, 10.0, 0), 0.5),
        ("clusters", nms_case(200, 12.0, 1), 0.5),
        ("odd size", nms_case(131, 6.0, 2), 0.3),
        ("chain", (steps, falling, torch.eye(60)), 0.4),
        ("ties", (steps, torch.ones(60), torch.eye(60)), 0.4),
        ("nan", nan_case, 0.5),
        ("empty", (torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, 0)), 0.5),
    ]


def _same_bits(a, b):
    # type: (torch.Tensor, torch.Tensor) -> torch.Tensor
    return (a == b) | (torch.isnan(a) & torch.isnan(b))


def check_nms(device, name, tensors, threshold):
    # type: (torch.device, str, tuple, float) -> list
    placed = [tensor.to(device) for tensor in tensors]
    keep, weighted = jetops.fused_attn_nms_scored(placed[0], placed[1], placed[2], threshold)
    alone = jetops.fused_attn_nms(placed[0], placed[1], placed[2], threshold)
    want_keep, want_weighted = reference.fused_attn_nms_scored(*tensors, iou_threshold=threshold)
    wrong_scores = int((~_same_bits(weighted.cpu(), want_weighted)).sum())
    wrong = int((keep.cpu() != want_keep).sum())
    wrong_alone = int((alone.cpu() != want_keep).sum())
    scored = wrong + wrong_scores
    f32 = torch.float32
    return [
        _record("fused_attn_nms", device, f32, name, wrong_alone == 0, mismatches=wrong_alone),
        _record("fused_attn_nms_scored", device, f32, name, scored == 0, mismatches=scored),
    ]


def _record(op, device, dtype, case, ok, **measure):
    name = str(dtype).replace("torch.", "")
    record = {"op": op, "device": str(device), "dtype": name, "case": case, "ok": bool(ok)}
    record.update(measure)
    return record


def _attempt(check, op, device, dtype, case, *arguments):
    """The records of ``check``; an exception becomes a failed record, so that the rest still runs."""
    try:
        records = check(*arguments)
    except Exception as exc:  # noqa: BLE001  whatever it is belongs in the report
        return [_record(op, device, dtype, case, False, error=str(exc).split("\n")[0])]
    return records if isinstance(records, list) else [records]


def check_device(device):
    # type: (torch.device) -> list
    records = []
    for dtype in DTYPES:
        for form in FORMS:
            records += _attempt(check_gelu, "gelu", device, dtype, form, device, dtype, form)
            records += _attempt(
                check_dropout, "bias_gelu_dropout", device, dtype, form, device, dtype, form
            )
    for name, tensors, threshold in nms_cases():
        records += _attempt(
            check_nms,
            "fused_attn_nms",
            device,
            torch.float32,
            name,
            device,
            name,
            tensors,
            threshold,
        )
    return records


def run():
    # type: () -> dict
    """The report as a dictionary; ``max_error`` is in units of the allowed error."""
    devices = [torch.device("cpu")]
    if torch.cuda.is_available():
        devices += [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    checks = [record for device in devices for record in check_device(device)]
    return {
        "jetops": jetops.__version__,
        "torch": torch.__version__,
        "machine": platform.machine(),
        "checks": checks,
        "ok": all(record["ok"] for record in checks),
    }


def main(arguments=None):
    # type: (Optional[list]) -> int
    """``arguments`` of the command line, by default those of this process."""
    parser = argparse.ArgumentParser(
        prog="python -m jetops.selftest",
        description="Compares each operator with its reference, on the CPU and on every GPU, and "
        "prints one JSON object. There, max_error is the largest error in units of what is allowed "
        "(1 is the limit), and mismatches counts elements that differ.",
        epilog="Exit code: 0 if every check passed, 1 if one failed, 2 for a wrong argument.",
    )
    parser.parse_args(arguments)
    report = run()
    print(json.dumps(report))
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
