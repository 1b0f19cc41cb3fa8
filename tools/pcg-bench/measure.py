"""Times, kernels, memory: how pcg-bench measures one workload."""

import json
import os
import statistics
import tempfile
import time

import torch

from entries import tensors_in


def synchronize(device):
    if device != "cpu":
        torch.cuda.synchronize()


def timed(call, arguments, device):
    """Microseconds from the call until its work is done."""
    synchronize(device)
    start = time.perf_counter()
    call(*arguments)
    synchronize(device)
    return (time.perf_counter() - start) * 1e6


def difference(expected, found):
    """The largest difference relative to the largest value above 1; infinite
    where the structure differs."""
    left, right = tensors_in(expected), tensors_in(found)
    if len(left) != len(right):
        return float("inf")
    worst = 0.0
    for a, b in zip(left, right):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if torch.equal(a, b) or a.numel() == 0:
            continue
        scale = max(1.0, a.abs().max().item())
        gap = (a.double() - b.double()).abs().max().item() / scale
        worst = max(worst, gap if gap == gap else float("inf"))
    return worst


def warm_up(call, arguments, device, most_calls):
    """Calls until five in a row are no faster than their predecessors.
    Returns the time of the first call and the number before the five."""
    times = []
    best = float("inf")
    idle = 0
    while len(times) < most_calls and idle < 5:
        times.append(timed(call, arguments(len(times)), device))
        idle = idle + 1 if times[-1] > 0.95 * best else 0
        best = min(best, times[-1])
    return times[0], len(times) - idle


def interleaved(calls, arguments, device, repetitions, seconds):
    """Times of each entry, in turns, so that a change of clocks meets all
    alike: {name: [microseconds]}. Ends early after `seconds`."""
    times = {name: [] for name in calls}
    deadline = time.perf_counter() + seconds
    for i in range(repetitions):
        for name, call in calls.items():
            times[name].append(timed(call, arguments(i), device))
        if time.perf_counter() > deadline and i >= 2:
            break
    return times


def summary(values):
    quartiles = (statistics.quantiles(values, n=4) if len(values) > 1
                 else [values[0]] * 3)
    return {"median": statistics.median(values), "low": quartiles[0],
            "high": quartiles[2], "samples": len(values)}


def gpu_work(call, arguments, calls=4):
    """Kernels (copies and fills included), microseconds in which the GPU ran
    at least one, and host reads, for one call on average."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU,
                             ProfilerActivity.CUDA]) as profiler:
        for i in range(calls):
            call(*arguments(i))
        torch.cuda.synchronize()
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    profiler.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))
    busy = 0.0
    end = float("-inf")
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    reads = sum(e.get("name") in ("aten::_local_scalar_dense", "host read")
                for e in events if e.get("cat") in ("cpu_op",
                                                    "user_annotation"))
    return {"kernels": len(spans) / calls, "busy_us": busy / calls,
            "host_reads": reads / calls}


def peak_bytes(call, arguments):
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    call(*arguments(0))
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
