#!/usr/bin/env python3
"""Writes the gated MLP: small kernels, cut by decisions made on the host.

    gated_mlp.py OUT.pt [--device cpu|cuda] [--width 512] [--layers 24]

Each layer is Linear, LayerNorm, GELU and a residual; after every sixth one the
sum of the activations is read to decide whether to clamp them in place.
"""

import argparse
from typing import Final

import torch
from torch import nn


class Layer(nn.Module):

    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.nn.functional.gelu(self.norm(self.linear(x)))


class GatedMlp(nn.Module):
    every: Final[int]  # known to the pass, so that only real gates are breaks

    def __init__(self, width: int = 512, layers: int = 24, every: int = 6):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.every = every

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i % self.every == self.every - 1:
                if x.sum().item() > 0:
                    x.clamp_(min=-3)
        return x


def build(device: str = "cpu", width: int = 512, layers: int = 24) -> GatedMlp:
    """The same weights every time, in eval mode, without gradients."""
    torch.manual_seed(0)
    model = GatedMlp(width, layers).eval().requires_grad_(False)
    return model.to(device)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=24)
    args = parser.parse_args()
    model = build(args.device, args.width, args.layers)
    torch.jit.script(model).save(args.out)


if __name__ == "__main__":
    main()
