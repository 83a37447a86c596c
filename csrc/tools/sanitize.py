"""All CUDA kernels once, at sizes with every kind of edge, for compute-sanitizer:

    compute-sanitizer --tool memcheck python csrc/tools/sanitize.py

Needs a CUDA device, and jetops built with CUDA. compute-sanitizer comes with the CUDA toolkit.
"""

import argparse
import sys

try:
    import torch

    import jetops
except ImportError as error:
    UNUSABLE = (
        "torch and jetops have to be installed in the Python that runs this "
        f"(pip install --no-build-isolation ./csrc): {error}"
    )
else:
    UNUSABLE = "" if torch.cuda.is_available() else "torch sees no CUDA device here"


def dtypes():
    return torch.float32, torch.float16, torch.bfloat16


def elementwise():
    for dtype in dtypes():
        for count in (1, 9, 4099):
            for offset in (0, 1):
                x = torch.randn(count + offset, device="cuda").to(dtype)[offset:]
                for form in ("none", "tanh"):
                    jetops.gelu(x, form)
                    torch.ops.jetops.gelu_backward(x, x, approximate=form)


def dropout():
    seed = torch.tensor([1, 2], device="cuda")
    for dtype in dtypes():
        for rows, columns in ((1, 1), (37, 64), (33, 37), (1000, 8), (3, 5000)):
            x = torch.randn(rows, columns, device="cuda").to(dtype)
            bias = torch.randn(columns, device="cuda").to(dtype)
            for p in (0.0, 0.3, 1.0):
                torch.ops.jetops.bias_gelu_dropout(x, bias, seed, p)
                torch.ops.jetops.bias_gelu_dropout_backward(x, x, bias, seed, p)


def nms():
    for dtype in dtypes():
        for count in (1, 31, 33, 129, 1000, 2241, 5000):
            corner = torch.rand(count, 2, device="cuda") * 500
            boxes = torch.cat([corner, corner + 60], 1)
            scores = torch.rand(count, device="cuda").to(dtype)
            attn_map = torch.rand(count, count, device="cuda").to(dtype)
            jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    if UNUSABLE:
        sys.exit("error: " + UNUSABLE)
    elementwise()
    dropout()
    nms()
    torch.cuda.synchronize()
    print("done")


if __name__ == "__main__":
    main()
