#!/usr/bin/env python3
"""Runs models by pcg and by others, side by side in one process.

    pcg_bench.py --library build/lib/libpcg.so [--workloads NAME,...]
    pcg_bench.py --library build/lib/libpcg.so model.pt --input 'f32[1,3,64,64]'

docs/pcg-bench.md says what is measured and how. Exit code 0: every result
agrees with eager PyTorch's; 1: one differs, or pcg failed; 2: wrong usage.
"""

import argparse
import json
import os
import sys
import time
import warnings

warnings.filterwarnings("ignore", message=".*NumPy.*")
import torch  # noqa: E402

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import entries as entries_module  # noqa: E402
import measure  # noqa: E402
import workloads as workloads_module  # noqa: E402
from entries import DEFAULT, ENTRIES, WITHOUT_RESULTS  # noqa: E402
from workloads import WORKLOADS, Missing  # noqa: E402


def names_of(known):
    def parse(text):
        names = text.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(
                    f"expected some of {', '.join(known)}, found '{name}'")
        return names
    return parse


def positive(text):
    value = float(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"expected more than 0, found {text}")
    return value


def input_spec(text):
    try:
        workloads_module.parse_input(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error))
    return text


def parse_arguments():
    parser = argparse.ArgumentParser(
        prog="pcg-bench", description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", help="a TorchScript file")
    parser.add_argument("--input", action="append", default=[],
                        metavar="SPEC", type=input_spec,
                        help="an argument of the file, e.g. f32[1,3,224,224]")
    parser.add_argument("--library", required=True, help="libpcg.so")
    parser.add_argument("--workloads", type=names_of(WORKLOADS),
                        default=list(WORKLOADS), metavar="NAME,...",
                        help=", ".join(WORKLOADS))
    parser.add_argument("--entries", type=names_of(ENTRIES), default=DEFAULT,
                        metavar="NAME,...", help=", ".join(ENTRIES))
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"],
                        default="auto")
    parser.add_argument("--repetitions", type=int, default=50)
    parser.add_argument("--seconds", type=positive, default=10.0,
                        help="for the timing of one workload")
    parser.add_argument("--budget", type=positive, default=float("inf"),
                        help="seconds after which no workload is begun")
    parser.add_argument("--tiny", action="store_true",
                        help="small sizes, to try the program itself")
    parser.add_argument("--json", help="where to write all figures")
    arguments = parser.parse_args()
    if arguments.repetitions < 3:
        parser.error("expected --repetitions of at least 3")
    if bool(arguments.model) != bool(arguments.input):
        parser.error("expected a model and its --input together")
    return arguments


def prepare_device(arguments):
    device = arguments.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ.setdefault("PCG_BACKEND", "host")
        print("no GPU in use: the host back end stands in for CUDA graphs, "
              "which checks results and measures nothing")
    torch.ops.load_library(os.path.abspath(arguments.library))
    return device


def first_line(error):
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def make_entry(name, make, device):
    """The entry and the row that it fills; no entry where it failed."""
    row = {"entry": name, "status": "ok"}
    try:
        return ENTRIES[name](make(), device), row
    except Missing as reason:
        row.update(status="left out", reason=str(reason))
    except Exception as error:  # Whatever a competitor throws is its result.
        row.update(status="failed", reason=first_line(error))
    return None, row


def run_workload(make, names, device, options):
    """Rows of one workload, one an entry."""
    workload = make()
    rows = []
    ready = {}
    expected = None
    with entries_module.gradients(workload):
        if not workload.scripted:
            expected = [workload.module(*workload.arguments(i))
                        for i in range(3)]
        for name in names:
            entry, row = make_entry(name, make, device)
            row["workload"] = None
            rows.append(row)
            if entry is None:
                continue
            try:
                first, steady = measure.warm_up(
                    entry.call, workload.arguments, device, most_calls=20)
                row.update(first_us=first, calls_to_steady=steady)
                if name not in WITHOUT_RESULTS:
                    found = [entry.call(*workload.arguments(0))]
                    if expected is None:
                        expected = found
                    # One at a time: some entries hand out the same memory.
                    row["difference"] = max(
                        measure.difference(
                            expected[i], entry.call(*workload.arguments(i)))
                        for i in range(len(expected)))
                    if row["difference"] > workload.tolerance:
                        row.update(status="differs",
                                   reason="by " + str(row["difference"]))
                        continue
                if device != "cpu":
                    row.update(measure.gpu_work(entry.call,
                                                workload.arguments))
                    row["peak_bytes"] = measure.peak_bytes(
                        entry.call, workload.arguments)
                ready[name] = (entry, row)
            except Exception as error:
                row.update(status="failed", reason=first_line(error))
        times = measure.interleaved(
            {name: entry.call for name, (entry, _) in ready.items()},
            workload.arguments, device, options.repetitions, options.seconds)
    for name, (entry, row) in ready.items():
        row["wall_us"] = measure.summary(times[name])
        row.update(entry.facts())
    return rows


def show(name, rows):
    print(f"\n{name}")
    print(f"  {'entry':22s} {'wall us':>10s} {'quartiles':>19s} "
          f"{'busy us':>9s} {'kernels':>8s} {'reads':>6s} {'first ms':>9s}")
    for row in rows:
        if row["status"] != "ok":
            print(f"  {row['entry']:22s} {row['status']}: {row['reason']}")
            continue
        wall = row["wall_us"]
        spread = f"{wall['low']:.1f}..{wall['high']:.1f}"
        figures = [f"{row[key]:.{digits}f}" if key in row else "-"
                   for key, digits in (("busy_us", 1), ("kernels", 0),
                                       ("host_reads", 1))]
        print(f"  {row['entry']:22s} {wall['median']:10.1f} {spread:>19s} "
              f"{figures[0]:>9s} {figures[1]:>8s} {figures[2]:>6s} "
              f"{row['first_us'] / 1e3:9.1f}", flush=True)


def main():
    options = parse_arguments()
    device = prepare_device(options)
    if options.model:
        suite = {options.model: lambda device, tiny: workloads_module.from_file(
            options.model, options.input, device)}
    else:
        suite = {name: WORKLOADS[name] for name in options.workloads}
    began = time.perf_counter()
    result = {"torch": torch.__version__, "device": device, "rows": [],
              "machine": torch.cuda.get_device_name() if device != "cpu"
              else "cpu"}
    faults = 0
    for name, make in suite.items():
        def fresh(make=make):
            torch.manual_seed(0)
            return make(device, options.tiny)
        if time.perf_counter() - began > options.budget:
            rows = [{"entry": "all", "status": "left out",
                     "reason": "the budget is spent"}]
        else:
            try:
                rows = run_workload(fresh, options.entries, device, options)
            except Missing as reason:
                rows = [{"entry": "all", "status": "left out",
                         "reason": str(reason)}]
        for row in rows:
            row["workload"] = name
            faults += row["status"] == "differs"
            faults += row["status"] == "failed" and row["entry"] == "pcg"
        show(name, rows)
        result["rows"] += rows
        if device != "cpu":
            torch.cuda.empty_cache()
    if options.json:
        with open(options.json, "w") as file:
            json.dump(result, file, indent=1)
            file.write("\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
