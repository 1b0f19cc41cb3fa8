"""Writes a model with forward hooks, or compares it with its partitioned form.

    hooks.py write MODEL.pt
    hooks.py compare LIBRARY MODEL.pt PARTITIONED.pt
"""

import copy
import json
import sys
from typing import Tuple

import torch


class Inner(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor):
        return torch.tanh(self.linear(x))


class Model(torch.nn.Module):

    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor):
        return torch.relu(self.inner(x)) + 1.0


def before(self, inputs: Tuple[torch.Tensor]) -> Tuple[torch.Tensor]:
    return (inputs[0] * 2.0,)


def after(self, inputs: Tuple[torch.Tensor],
          output: torch.Tensor) -> torch.Tensor:
    return output - 0.25


def write(path):
    model = Model().eval()
    for module in (model, model.inner):
        module.register_forward_pre_hook(before)
        module.register_forward_hook(after)
    torch.jit.script(model).save(path)


def same(expected, found):
    for _ in range(5):
        x = torch.randn(3, 4)
        assert torch.equal(expected(x), found(x))


def compare(library, model_path, partitioned_path):
    torch.ops.load_library(library)
    model = torch.jit.load(model_path)
    partitioned = torch.jit.load(partitioned_path)
    with torch.no_grad():
        same(model, partitioned)
        copies = [copy.deepcopy(model), copy.deepcopy(partitioned)]
        for each in copies:
            for parameter in each.parameters():
                parameter.mul_(2.0)
        same(*copies)
        same(model, partitioned)
        partitioned.load_state_dict(copies[0].state_dict())
        same(copies[0], partitioned)
    report = json.loads(partitioned.pcg_sequence.report())
    assert sum(s["replays"] for s in report["segments"]) > 0, report


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](*sys.argv[2:])
