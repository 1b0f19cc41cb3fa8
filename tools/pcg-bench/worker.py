"""Measures all entries of one model, in a process of its own.

A crash or a call without end takes only that model's rows along. All entries
of a model live in one process, and their repetitions alternate.
"""

import contextlib
import gc
import json
import os
import select
import signal
import tempfile
import time

import torch

import compare
import entries
import graphs
import measure
import suite


class OutOfTime(BaseException):
    """Not an Exception: compilers catch those and go on."""


class Row:
    """One entry of one model, while it is measured."""

    def __init__(self, name):
        self.name = name
        self.call = None
        self.latency, self.throughput = [], []
        self.spent = 0.0
        self.facts = {}

    def result(self, model, status, reason=""):
        return {"model": model, "entry": self.name, "status": status,
                "reason": reason, **self.facts}


@contextlib.contextmanager
def modes(workload, entry):
    """The global switches that an entry runs under, and inputs as they were:
    optimised TorchScript may mark an input itself where a model asks for the
    gradient of what it has detached."""
    for leaf in compare.leaves(workload.inputs):
        if isinstance(leaf, torch.Tensor):
            leaf.requires_grad_(False)
    old = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(entry != "torchscript_no_nnc")
    try:
        with torch.set_grad_enabled(workload.gradients):
            yield
    finally:
        torch._C._jit_set_texpr_fuser_enabled(old)


def reference(workload, context):
    """What each call returns without any optimisation."""
    with torch.set_grad_enabled(workload.gradients):
        if workload.module is not None:
            return [compare.copied(workload.module(*a))
                    for a in workload.inputs]
        module = context.load()
        with torch.jit.optimized_execution(False):
            workload.reset(module)
            return [compare.copied(module(*a)) for a in workload.inputs]


def counts(context):
    report = json.loads(context.sequence.report())
    return report, {key: sum(s[key] for s in report["segments"])
                    for key in ("captures", "replays", "eager_calls")}


def set_up(row, workload, context, expected):
    """Makes the call, warms it up, checks it. Returns what is wrong or ''."""
    device = workload.device
    gc.collect()
    if device != "cpu":
        torch.cuda.empty_cache()
    with modes(workload, row.name):
        start = time.perf_counter()
        row.call = entries.ENTRIES[row.name](context)
        if device != "cpu":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_reserved()
        ends, largest, identical = [], 0.0, True
        launch = isinstance(row.call, graphs.BareLaunch)
        for turn in range(4):
            if isinstance(row.call, torch.jit.ScriptModule):
                workload.reset(row.call)
            for arguments, want in zip(workload.inputs, expected):
                begin = time.perf_counter()
                found = row.call(*arguments)
                measure.wait(device)
                now = time.perf_counter()
                ends.append((now - begin, now - start))
                # A bare launch reads what was copied in last.
                gap, same = compare.difference(
                    expected[0] if launch else want, compare.copied(found))
                largest, identical = max(largest, gap), identical and same
    row.warm_up = ends
    row.facts["first_result_s"] = ends[0][1]
    row.facts["result"] = {
        "identical": identical, "tolerance": workload.tolerance,
        "largest_difference":
            largest if largest != float("inf") else "not comparable"}
    if device != "cpu":
        row.facts["peak_memory_bytes"] = (
            torch.cuda.max_memory_reserved() - before)
    if largest > workload.tolerance:
        return (f"differs from the reference by {largest:.3g}, more than "
                f"{workload.tolerance:g}")
    return ""


def sample(rows, workload, repetitions, seconds):
    """Repetitions of all entries in turn, until each has had its time."""
    gc.collect()
    gc.disable()
    try:
        for turn in range(repetitions):
            for row in rows:
                if turn >= 3 and row.spent > seconds:
                    continue
                start = time.perf_counter()
                with modes(workload, row.name):
                    row.latency.append(measure.latency(
                        row.call, workload.inputs, workload.device))
                    row.throughput.append(measure.back_to_back(
                        row.call, workload.inputs, workload.device))
                row.spent += time.perf_counter() - start
    finally:
        gc.enable()
    for row in rows:
        row.facts["latency_us"] = measure.summary(row.latency)
        row.facts["throughput_us"] = measure.summary(row.throughput)
        limit = 2 * row.facts["latency_us"]["median"] / 1e6 + 50e-6
        slow = [i for i, (one, _) in enumerate(row.warm_up) if one > limit]
        at = min(slow[-1] + 1 if slow else 0, len(row.warm_up) - 1)
        row.facts["steady_s"] = row.warm_up[at][1]


def last_facts(rows, workload, context):
    """The profiler comes last: it slows the launches after it."""
    for row in rows:
        with modes(workload, row.name):
            if row.name == "pcg":
                _, before = counts(context)
                for arguments in workload.inputs:
                    row.call(*arguments)
                report, after = counts(context)
                calls = len(workload.inputs)
                row.facts["pcg"] = {
                    "segments": len(report["segments"]),
                    "breaks": len(context.partition_report["breaks"]),
                    "captures": after["captures"],
                    **{key + "_per_call": (after[key] - before[key]) / calls
                       for key in ("replays", "eager_calls")},
                    "pool_bytes": report["pool_bytes"],
                    "reasons": sorted({reason for s in report["segments"]
                                       for reason in s["reasons"]})}
            if workload.device != "cpu":
                row.facts.update(measure.activity(row.call, workload.inputs))


def scheduling_floor(context):
    if context.whole is None:
        return None
    empty = graphs.BareLaunch(context.whole, empty=True)
    times = [measure.latency(empty, [()], "cuda") for _ in range(50)]
    return measure.summary(times[10:])["median"]


def measure_model(name, build, options, send):
    """Sends a row for each entry and the model's own facts."""
    def alarm(signum, frame):
        raise OutOfTime()

    signal.signal(signal.SIGALRM, alarm)
    workload = build(suite.Settings(options.device, options.tiny,
                                    options.silero), name)
    if options.device != "cpu":
        torch.cuda.init()
    good = []
    with tempfile.TemporaryDirectory() as folder:
        context = entries.Context(workload, folder, options.seed_packages)
        expected = reference(workload, context)
        for entry in options.entries:
            row = Row(entry)
            send({"doing": entry})
            left = min(options.setup_seconds,
                       options.deadline - time.monotonic())
            if left <= 0:
                send(row.result(name, "left out",
                                "the model's time was spent before"))
                continue
            signal.alarm(max(1, int(left)))
            try:
                fault = set_up(row, workload, context, expected)
                signal.alarm(0)
                if fault:
                    send(row.result(name, "wrong", fault))
                else:
                    good.append(row)
            except suite.Unavailable as error:
                send(row.result(name, "left out", str(error)))
            except OutOfTime:
                send(row.result(name, "left out", "its set-up took more than "
                                f"{left:.0f} s"))
            except Exception as error:  # noqa: BLE001: becomes a row
                send(row.result(name, "failed", suite.first_line(error)))
            finally:
                signal.alarm(0)
            if options.device != "cpu":
                torch.cuda.synchronize()  # a broken context ends the process
        send({"doing": "the repetitions"})
        sample(good, workload, options.repetitions, options.seconds)
        floor = scheduling_floor(context)
        send({"doing": "the profile"})
        last_facts(good, workload, context)
        for row in good:
            row.facts["floor_us"] = floor
            send(row.result(name, "measured"))


def run_model(name, build, options, budget):
    """Forks, measures, and returns one row for each entry."""
    reading, writing = os.pipe()
    options.deadline = time.monotonic() + 0.7 * budget
    child = os.fork()
    if child == 0:
        os.close(reading)
        status = 0
        with os.fdopen(writing, "w") as pipe:
            def send(message):
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()
            try:
                measure_model(name, build, options, send)
            except suite.Unavailable as error:
                send({"end": "left out", "why": str(error)})
            except BaseException as error:  # noqa: BLE001: the parent says it
                send({"end": "failed", "why": suite.first_line(error)})
                status = 1
        os._exit(status)
    os.close(writing)
    end, killed, text = time.monotonic() + budget, False, b""
    while True:
        ready, _, _ = select.select([reading], [], [],
                                    max(0.0, end - time.monotonic()))
        if not ready:
            os.kill(child, signal.SIGKILL)
            killed = True
            break
        piece = os.read(reading, 1 << 16)
        if not piece:
            break
        text += piece
    os.close(reading)
    _, status = os.waitpid(child, 0)
    rows, doing, end_status, why = {}, "set-up", "failed", ""
    for line in text.decode().split("\n")[:-1]:
        message = json.loads(line)
        if "entry" in message:
            rows[message["entry"]] = message
        elif "end" in message:
            end_status, why = message["end"], message["why"]
        else:
            doing = message["doing"]
    if killed:
        why = f"stopped after {budget:.0f} s, during {doing}"
    elif os.WIFSIGNALED(status):
        why = f"the process ended by signal {os.WTERMSIG(status)}, {doing}"
    elif why and end_status == "failed":
        why = f"{why}, during {doing}"
    return [rows.get(entry) or
            Row(entry).result(name, end_status, why or "no result")
            for entry in options.entries]
