"""Times of calls and what the profiler saw of them."""

import json
import os
import statistics
import tempfile
import time

import torch


def wait(device):
    if device != "cpu":
        torch.cuda.synchronize()


def summary(times):
    """Median and quartiles of seconds, in microseconds."""
    values = sorted(1e6 * t for t in times)
    if len(values) > 1:
        lower, _, upper = statistics.quantiles(values, method="inclusive")
    else:
        lower = upper = values[0]
    return {"median": statistics.median(values), "lower": lower,
            "upper": upper, "samples": len(values)}


def latency(call, inputs, device):
    """Seconds of one call that is waited for: the mean over the inputs."""
    total = 0.0
    for arguments in inputs:
        wait(device)
        start = time.perf_counter()
        call(*arguments)
        wait(device)
        total += time.perf_counter() - start
    return total / len(inputs)


def back_to_back(call, inputs, device, rounds=4):
    """Seconds of one call where only the last is waited for."""
    wait(device)
    start = time.perf_counter()
    for _ in range(rounds):
        for arguments in inputs:
            call(*arguments)
    wait(device)
    return (time.perf_counter() - start) / (rounds * len(inputs))


def activity(call, inputs):
    """Kernels, copies to the host and busy time of a call, as profiled."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for arguments in inputs:
            call(*arguments)
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
    work = [event for event in events if event.get("cat") in
            ("kernel", "gpu_memcpy", "gpu_memset")]
    busy, end = 0.0, float("-inf")
    for event in sorted(work, key=lambda event: event["ts"]):
        start, stop = event["ts"], event["ts"] + event["dur"]
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    count = len(inputs)
    return {
        "kernels": sum(e["cat"] == "kernel" for e in work) / count,
        "busy_us": busy / count,
        "host_reads": sum("DtoH" in e["name"] for e in work) / count,
    }
