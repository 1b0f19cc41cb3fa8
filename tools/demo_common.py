"""What the demonstrations share: loading, comparing, timing, summaries."""

import argparse
import json
import os
import statistics
import time
import warnings

warnings.filterwarnings("ignore", message=".*NumPy.*")
import torch  # noqa: E402


def parser(description):
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--original", required=True, help="TorchScript file")
    result.add_argument("--partitioned", required=True,
                        help="what pcg-opt made of it")
    result.add_argument("--library", required=True, help="libpcg.so")
    result.add_argument("--device", choices=["auto", "cpu", "cuda"],
                        default="auto")
    result.add_argument("--tolerance", type=float, default=1e-5,
                        help="largest difference that counts as agreement")
    return result


def prepare(args):
    """Picks the device and back end, loads libpcg. Returns the device."""
    device = args.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        os.environ.setdefault("PCG_BACKEND", "host")
        print("no GPU in use: the host back end stands in for CUDA graphs, "
              "which checks results and measures nothing")
    else:
        print(f"on {torch.cuda.get_device_name()}")
    torch.ops.load_library(os.path.abspath(args.library))
    torch.set_grad_enabled(False)
    return device


def load(path, device):
    return torch.jit.load(path, map_location=device).eval()


class Agreement:
    """Counts identical results and keeps the largest difference, relative to
    the largest value of the result where that is above 1."""

    def __init__(self, what, tolerance):
        self.what = what
        self.tolerance = tolerance
        self.count = 0
        self.identical = 0
        self.largest = 0.0

    def add(self, expected, actual):
        self.count += 1
        if (expected.shape != actual.shape or expected.dtype != actual.dtype
                or expected.device != actual.device):
            self.largest = float("inf")
        elif torch.equal(expected, actual):
            self.identical += 1
        else:
            scale = max(1.0, expected.abs().max().item())
            difference = (expected.double() - actual.double()).abs().max()
            difference = difference.item() / scale
            # A NaN compares false with everything; it is no agreement.
            self.largest = (max(self.largest, difference)
                            if difference == difference else float("inf"))

    def holds(self):
        return self.count > 0 and self.largest <= self.tolerance

    def show(self):
        verdict = "agree" if self.holds() else "DISAGREE"
        print(f"{self.what}: {verdict}, {self.identical} of {self.count} "
              f"identical, largest difference {self.largest:.3g}")


def median_times(calls, repetitions, per_repetition):
    """Median microseconds of one call, each waited for.

    `calls` maps a name to a function of an index. Repetitions of the
    candidates alternate, so that a change of clocks meets all alike.
    """
    times = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            for i in range(per_repetition):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call(i)
                torch.cuda.synchronize()
                times[name].append((time.perf_counter() - start) * 1e6)
    return {name: statistics.median(values) for name, values in times.items()}


def show_times(unit, times, reference):
    print(f"median time a {unit}, one at a time:")
    for name, value in times.items():
        ratio = times[reference] / value
        print(f"  {name:34s} {value:9.1f} us  {ratio:5.2f}x {reference}")


def show_statistics(module):
    """Prints what the sequence did; returns the number of replays."""
    report = json.loads(module.pcg_sequence.report())
    total = 0
    print("segments, as the sequence counted them:")
    for segment in report["segments"]:
        total += segment["replays"]
        print(f"  {segment['name']}: {segment['nodes']} nodes, "
              f"{segment['captures']} captures, {segment['replays']} replays, "
              f"{segment['eager_calls']} eager calls")
        for reason in segment["reasons"]:
            print(f"    {reason}")
    print(f"{total} replays of {len(report['segments'])} segments")
    return total
