#!/usr/bin/env python3
"""Calls the gated MLP, original and partitioned, on inputs of batch 8.

    demo_gated_mlp.py --original gated_mlp.pt --partitioned gated_mlp_pcg.pt
                      --library build/lib/libpcg.so

Some inputs open the gates and some keep them closed. Fails if the results
disagree with eager PyTorch's.
"""

import os
import sys

import demo_common as demo
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "test", "models"))
import gated_mlp  # noqa: E402


def main():
    parser = demo.parser(__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    device = demo.prepare(args)

    original = demo.load(args.original, device)
    partitioned = demo.load(args.partitioned, device)
    weights = original.state_dict()
    eager = gated_mlp.build(device, weights["layers.0.norm.weight"].numel(),
                            sum(k.endswith("norm.weight") for k in weights))
    eager.load_state_dict(weights)

    # Each call gets memory it has not seen; a large negative mean keeps the
    # first gates closed.
    random = torch.Generator().manual_seed(2)
    width = eager.layers[0].linear.in_features
    inputs = [(torch.randn(args.batch, width, generator=random)
               - 20 * (i % 4 == 3)).to(device) for i in range(64)]
    agreement = demo.Agreement("outputs", args.tolerance)
    for x in inputs:
        agreement.add(eager(x.clone()), partitioned(x.clone()))
    agreement.show()
    replays = demo.show_statistics(partitioned)

    if device == "cuda":
        def run(module):
            return lambda i: module(inputs[i % len(inputs)])

        calls = {"eager": run(eager), "TorchScript": run(original),
                 "pcg": run(partitioned)}
        for call in calls.values():
            for i in range(len(inputs)):
                call(i)
        times = demo.median_times(calls, repetitions=8, per_repetition=64)
        demo.show_times("call", times, "TorchScript")

    if not agreement.holds():
        return 1
    if not replays:
        print("nothing was replayed")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
