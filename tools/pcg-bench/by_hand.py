"""Calls written by hand with a package that captures piece by piece.

What a user of piecewise-cuda-graphs or breakable-cuda-graphs would write for
three models: static buffers, a warm-up, one capture with the host's decisions
marked as not for the graph, and a call that copies inputs in and replays.
"""

import importlib

import torch


class Package:
    """The same few names of either package."""

    def __init__(self, name):
        self.module = importlib.import_module(name)
        self.no_graph = self.module.no_graph
        breakable = name.startswith("breakable")
        self.sequence = (self.module.BreakableCUDAGraph if breakable
                         else self.module.CUDAGraphSequence)
        self.graph = (self.module.breakable_graph if breakable
                      else self.module.piecewise_graph)

    def capture(self, work, warm_ups=3):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_ups):
                work()
        torch.cuda.current_stream().wait_stream(side)
        sequence = self.sequence()
        with self.graph(sequence):
            work()
        return sequence


def quick_start(workload, package):
    source = workload.inputs[0][0].clone()
    result = torch.empty_like(source)

    @package.no_graph
    def gate(x):
        if x.sum().item() > 0:
            x.clamp_(min=0)

    def work():
        result.copy_(source * 2)
        gate(result)
        result.add_(1.0)

    sequence = package.capture(work)

    def call(x):
        source.copy_(x)
        sequence.replay()
        return result
    return call


def gated_mlp(workload, package):
    module = workload.module
    source = workload.inputs[0][0].clone()
    result = torch.empty_like(source)

    @package.no_graph
    def gate(x):
        if x.sum().item() > 0:
            x.clamp_(min=-3)

    def work():
        x = source
        for i, layer in enumerate(module.layers):
            x = layer(x)
            if i % module.every == module.every - 1:
                gate(x)
        result.copy_(x)

    sequence = package.capture(work)

    def call(x):
        source.copy_(x)
        sequence.replay()
        return result
    return call


def decode(workload, package):
    module = workload.module
    token = workload.inputs[0][0].clone()
    position = torch.zeros_like(token)
    found = []

    @package.no_graph
    def read(value):
        found.append(int(value.item()))

    def work():
        next_token, next_position = module.step(token, position)
        token.copy_(next_token)
        position.copy_(next_position)
        read(token)

    # A warm-up must not run past the cache.
    position.zero_()
    sequence = package.capture(work)

    def call(prompt):
        token.copy_(prompt)
        position.zero_()
        found.clear()
        for _ in range(module.tokens):
            sequence.replay()
            if found[-1] == module.end:
                break
        return list(found)
    return call
