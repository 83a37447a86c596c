"""The command line of the benchmark."""

import argparse
import json
import os
import platform
import sys

import torch

import jetops

from . import dropout, gelu, ingest, nms, report
from .measure import Bench

GROUPS = {"nms": nms.run, "gelu": gelu.run, "dropout": dropout.run, "ingest": ingest.run}


def machine(device):
    # type: (torch.device) -> dict
    found = {
        "device": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "jetops": jetops.__version__,
        "cuda": torch.version.cuda,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["device"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["processors"] = properties.multi_processor_count
    return found


def main():
    # type: () -> int
    parser = argparse.ArgumentParser(prog="python -m jetops.bench", description=__doc__)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=default)
    parser.add_argument("--only", help="groups, with commas: " + ", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="fewer samples and cases")
    parser.add_argument("--out", default=".", help="folder for bench.json and bench.md")
    parser.add_argument("--compare", metavar="OLD.json", help="show changes since that run")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(GROUPS)
    unknown = sorted(set(names) - set(GROUPS))
    if unknown:
        parser.error(f"no group {unknown[0]}; there are {', '.join(GROUPS)}")

    bench = Bench(torch.device(options.device), options.quick)
    for name in names:
        GROUPS[name](bench)
    result = {
        "machine": machine(bench.device),
        "rows": [row._asdict() for row in bench.rows],
    }
    os.makedirs(options.out, exist_ok=True)
    with open(os.path.join(options.out, "bench.json"), "w") as stream:
        json.dump(result, stream, indent=1)
    table = report.markdown(result)
    with open(os.path.join(options.out, "bench.md"), "w") as stream:
        stream.write(table)
    print(table)
    if options.compare:
        with open(options.compare) as stream:
            print(report.comparison(json.load(stream), result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
