"""The competitors. Each makes a call of a workload: build(context) -> call."""

import json
import os
import sys

import torch

import graphs
import suite


class Context:
    """What entries of one workload share."""

    def __init__(self, workload, folder, seed_packages=""):
        self.workload = workload
        self.folder = folder
        self.seed_packages = seed_packages
        self.file = os.path.join(folder, "original.pt")
        self.partitioned = os.path.join(folder, "partitioned.pt")
        self.partition_report = None
        self.sequence = None
        self.whole = None
        workload.script().save(self.file)

    def load(self, path=None):
        return torch.jit.load(path or self.file,
                              map_location=self.workload.device).eval()


def eager(context):
    if context.workload.module is None:
        raise suite.Unavailable("a TorchScript file has no Python module")
    return context.workload.module


def torchscript(context):
    return context.load()


def torchscript_frozen(context):
    return torch.jit.freeze(
        context.load(),
        preserved_attrs=list(context.workload.keep_methods) or None)


def compiled(partition):
    def build(context):
        if context.workload.device == "cpu":
            raise suite.Unavailable("needs CUDA: CUDA graphs are its point")
        # As options, which compilations are told apart by.
        options = dict(torch._inductor.list_mode_options("reduce-overhead"),
                       graph_partition=partition)
        return torch.compile(eager(context), options=options)
    return build


def whole_graph(context):
    if context.workload.device == "cpu":
        raise suite.Unavailable("needs CUDA")
    if context.workload.not_one_graph:
        raise suite.Unavailable(context.workload.not_one_graph)
    module = context.workload.module or context.load()
    context.whole = graphs.WholeGraph(module, context.workload.inputs[0])
    return context.whole


def bare_launch(context):
    if context.whole is None:
        raise suite.Unavailable("there is no whole graph to launch")
    context.whole(*context.workload.inputs[0])
    return graphs.BareLaunch(context.whole)


def by_hand(name):
    def build(context):
        if context.workload.device == "cpu":
            raise suite.Unavailable("needs CUDA")
        if context.workload.by_hand is None:
            raise suite.Unavailable("nobody has written this model by hand")
        import by_hand as written
        if context.seed_packages and context.seed_packages not in sys.path:
            sys.path.append(context.seed_packages)
        try:
            package = written.Package(name)
        except ImportError as error:
            raise suite.Unavailable(
                f"{suite.first_line(error)} (--seed-packages DIR)")
        return context.workload.by_hand(context.workload, package)
    return build


def pcg(context):
    workload = context.workload
    context.partition_report = json.loads(torch.ops.pcg.partition_file(
        context.file, context.partitioned,
        graph_safe_ops=list(workload.graph_safe_ops),
        backend="host" if workload.device == "cpu" else "auto"))
    module = context.load(context.partitioned)
    context.sequence = module.pcg_sequence
    return module


# In the order in which they are set up.
ENTRIES = {
    "eager": eager,
    "torchscript": torchscript,
    "torchscript_no_nnc": torchscript,
    "torchscript_frozen": torchscript_frozen,
    "pcg": pcg,
    "piecewise_by_hand": by_hand("piecewise_cuda_graphs"),
    "breakable_by_hand": by_hand("breakable_cuda_graphs"),
    "graph": whole_graph,
    "graph_launch": bare_launch,
    "compile": compiled(False),
    "compile_partition": compiled(True),
}
