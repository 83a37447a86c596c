"""Devices to test on, and tools that several test files share.

    pip install --no-build-isolation ./csrc && pytest csrc/tests

tests the CPU and every CUDA device in sight. JETOPS_REQUIRE_CUDA=1 makes it an error if none is.
JETOPS_WHEEL_PTX names the folder whose libraries test_wheel_ptx.py runs.
"""

import os

import pytest
import torch

import jetops


def cuda_devices():
    if not torch.cuda.is_available():
        return []
    return [f"cuda:{index}" for index in range(torch.cuda.device_count())]


def tested_devices():
    return ["cpu"] + cuda_devices()


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: needs a CUDA device")
    if os.environ.get("JETOPS_REQUIRE_CUDA") == "1" and not cuda_devices():
        raise pytest.UsageError("JETOPS_REQUIRE_CUDA=1 is set, but torch sees no CUDA device.")


def pytest_report_header(config):
    names = [
        f"{name} ({torch.cuda.get_device_name(name)})" if name != "cpu" else name
        for name in tested_devices()
    ]
    wheels = os.environ.get("JETOPS_WHEEL_PTX") or "not run, JETOPS_WHEEL_PTX is not set"
    return [
        f"jetops {jetops.__version__}, torch {torch.__version__}, devices: {', '.join(names)}",
        f"PTX of wheels: {wheels}",
    ]


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", tested_devices())
    if "cuda_device" in metafunc.fixturenames:
        metafunc.parametrize("cuda_device", cuda_devices())
