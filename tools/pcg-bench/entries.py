"""The ways in which pcg-bench runs a workload."""

import contextlib
import json
import os
import tempfile

import torch

import workloads
from workloads import Missing


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for key in sorted(value) for t in tensors_in(value[key])]
    if isinstance(value, (list, tuple)):
        return [t for element in value for t in tensors_in(element)]
    return [torch.tensor(value)]


class Entry:
    """One way to run a workload: a callable, and what it can tell of itself."""

    def __init__(self, call, facts=lambda: {}):
        self.call = call
        self.facts = facts


def eager(workload, device):
    if workload.scripted:
        raise Missing("a TorchScript file has no eager form")
    return Entry(workload.module)


def script(workload):
    if workload.scripted:
        return workload.module
    return torch.jit.script(workload.module)


def torchscript(workload, device):
    return Entry(script(workload))


def torchscript_without_fuser(workload, device):
    """The fuser's switch is one for the process, so it is off while the
    module is specialized, which happens in its first calls."""
    module = script(workload)
    before = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)
    try:
        for i in range(3):
            module(*workload.arguments(i))
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)
    return Entry(module)


def torchscript_frozen(workload, device):
    return Entry(torch.jit.freeze(script(workload).eval()))


def compiled(partition):
    def make(workload, device):
        if workload.scripted:
            raise Missing("torch.compile takes no TorchScript file")
        import torch._dynamo
        import torch._inductor.config as inductor
        torch._dynamo.reset()
        inductor.graph_partition = partition
        module = torch.compile(workload.module, mode="reduce-overhead")

        def call(*arguments):
            torch.compiler.cudagraph_mark_step_begin()
            return module(*arguments)
        for i in range(4):
            call(*workload.arguments(i))
        return Entry(call)
    return make


class WholeGraph:
    """One torch.cuda.graph of the whole call, with its inputs copied in."""

    def __init__(self, workload, device):
        if device == "cpu":
            raise Missing("CUDA graphs need a GPU")
        self.arguments = workload.arguments(0)
        module = workload.module
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*self.arguments)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(self.graph):
            self.result = module(*self.arguments)
        self.graph.instantiate()

    def __call__(self, *arguments):
        for mine, given in zip(tensors_in(self.arguments),
                               tensors_in(arguments)):
            if mine.is_cuda:
                mine.copy_(given)
        self.graph.replay()
        return self.result


def whole_graph(workload, device):
    return Entry(WholeGraph(workload, device))


def launch(workload, device):
    """cudaGraphLaunch alone: what any use of graphs has to add to."""
    graph = WholeGraph(workload, device)

    def call(*arguments):
        graph.graph.replay()
        return None
    return Entry(call)


def floor(workload, device):
    """The same launch with every kernel disabled: the cost of scheduling."""
    import graph_nodes
    graph = WholeGraph(workload, device)
    disabled = graph_nodes.disable_kernels(graph.graph)

    def call(*arguments):
        graph.graph.replay()
        return None
    return Entry(call, lambda: {"disabled_kernels": disabled})


def pcg(workload, device):
    folder = tempfile.mkdtemp()
    original = os.path.join(folder, "original.pt")
    partitioned = os.path.join(folder, "partitioned.pt")
    script(workload).save(original)
    report = json.loads(torch.ops.pcg.partition_file(
        original, partitioned, graph_safe_ops=["torchvision::roi_align"],
        backend="host" if device == "cpu" else "auto"))
    module = torch.jit.load(partitioned, map_location=device)

    def facts():
        now = json.loads(module.pcg_sequence.report())
        return {"segments": len(report["segments"]),
                "breaks": len(report["breaks"]),
                "coverage": report["coverage"],
                "replays": sum(s["replays"] for s in now["segments"]),
                "pool_bytes": now["pool_bytes"],
                "reasons": sorted({r for s in now["segments"]
                                   for r in s["reasons"]})}
    return Entry(module, facts)


ENTRIES = {
    "eager": eager,
    "torchscript": torchscript,
    "torchscript-no-fuser": torchscript_without_fuser,
    "torchscript-frozen": torchscript_frozen,
    "compile": compiled(False),
    "compile-partition": compiled(True),
    "whole-graph": whole_graph,
    "launch": launch,
    "floor": floor,
    "pcg": pcg,
}

# Those that yield no results to compare.
WITHOUT_RESULTS = {"launch", "floor"}
# Those that compile for minutes are run when asked for.
DEFAULT = [name for name in ENTRIES if not name.startswith("compile")]


@contextlib.contextmanager
def gradients(workload):
    """Forces need a tape; everything else is inference."""
    with torch.set_grad_enabled(
            isinstance(workload.module, workloads.Potential)):
        yield
