"""Holds partitioned torchvision models against the originals.

Each model is scripted with random weights, partitioned by
`pcg::partition_file`, and run next to the original on several inputs, some of
them repeated so that captures and replays happen. Results must be equal in
every bit. Numbers of segments and breaks are pinned: a change of the
partitioner that moves one has to say so here.

    python torchvision_models.py --library build/lib/libpcg.so [--device cuda]
        [MODEL ...]

On a GPU the share of a call's kernels that replays launch is measured too.
Exit code 0: all as pinned; 1: something differs; 77: torchvision is missing.
"""

import argparse
import json
import os
import sys
import tempfile

import torch

try:
    import torchvision
except (ImportError, RuntimeError) as error:
    print(f"skipped: torchvision cannot be imported ({error})")
    sys.exit(77)


def image(*shape):
    return lambda generator: (torch.rand(*shape, generator=generator),)


def image_pair(*shape):
    return lambda generator: tuple(
        torch.rand(*shape, generator=generator) for _ in range(2))


def image_list(*sizes):
    return lambda generator: (
        [torch.rand(3, *size, generator=generator) for size in sizes],)


def detection(name, **options):
    constructor = getattr(torchvision.models.detection, name)
    return lambda: constructor(
        weights=None, weights_backbone=None, **options).eval()


def classification(name):
    return lambda: getattr(torchvision.models, name)(weights=None).eval()


# One entry a model: how to make it, its inputs (run in order), the pinned
# numbers of segments and breaks, and the least share of kernels in replays.
# What detection models do class by class behind the network (thresholds,
# non-maximum suppression, selection by masks) has shapes that depend on the
# data and stays eager: thousands of small kernels in SSDlite.
VISION = [image(1, 3, 96, 96), image(2, 3, 64, 96)]
SQUARE = [image(1, 3, 224, 224), image(2, 3, 224, 224)]
DETECTION = [image_list((96, 128)), image_list((128, 96), (96, 96))]
MODELS = {
    "resnet50": (classification("resnet50"), VISION, 1, 0, 0.95),
    "efficientnet_b0": (classification("efficientnet_b0"), VISION, 1, 0, 0.95),
    "vit_b_16": (classification("vit_b_16"), SQUARE, 1, 0, 0.95),
    "swin_t": (classification("swin_t"), VISION, 1, 0, 0.95),
    "raft_small": (
        lambda: torchvision.models.optical_flow.raft_small(
            weights=None).eval(),
        [image_pair(1, 3, 128, 128), image_pair(1, 3, 128, 136)], 1, 0, 0.95),
    "deeplabv3_resnet50": (
        lambda: torchvision.models.segmentation.deeplabv3_resnet50(
            weights=None, weights_backbone=None).eval(), VISION, 1, 0, 0.95),
    "ssdlite320_mobilenet_v3_large": (
        detection("ssdlite320_mobilenet_v3_large", score_thresh=0.005,
                  detections_per_img=10), DETECTION,
        20, 91, 0.05),
    "fasterrcnn_resnet50_fpn": (
        detection("fasterrcnn_resnet50_fpn", min_size=128, max_size=192,
                  box_score_thresh=0.005,
                  box_detections_per_img=10), DETECTION,
        31, 116, 0.65),
    "maskrcnn_resnet50_fpn": (
        detection("maskrcnn_resnet50_fpn", min_size=128, max_size=192,
                  box_score_thresh=0.005,
                  box_detections_per_img=10), DETECTION,
        38, 143, 0.45),
    "keypointrcnn_resnet50_fpn": (
        detection("keypointrcnn_resnet50_fpn", min_size=128, max_size=192,
                  box_score_thresh=0.005,
                  box_detections_per_img=10), DETECTION,
        42, 155, 0.55),
    "retinanet_resnet50_fpn": (
        detection("retinanet_resnet50_fpn", min_size=128, max_size=192,
                  score_thresh=0.005, detections_per_img=10), DETECTION,
        44, 132, 0.78),
    "fcos_resnet50_fpn": (
        detection("fcos_resnet50_fpn", min_size=128, max_size=192,
                  score_thresh=0.005, detections_per_img=10), DETECTION,
        28, 112, 0.8),
}


def to(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return type(value)(to(element, device) for element in value)


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for key in sorted(value):
            yield from tensors(value[key])
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from tensors(element)


def difference(expected, found):
    """None where equal in every bit, else a sentence."""
    left, right = list(tensors(expected)), list(tensors(found))
    if len(left) != len(right):
        return f"expected {len(left)} tensors, found {len(right)}"
    for index, (a, b) in enumerate(zip(left, right)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return (f"tensor {index}: expected {a.dtype} {tuple(a.shape)}, "
                    f"found {b.dtype} {tuple(b.shape)}")
        if not torch.equal(a.nan_to_num(), b.nan_to_num()):
            gap = (a.double() - b.double()).abs().max().item()
            return f"tensor {index}: differs by up to {gap:.3g}"
    return None


def replayed_kernels(call):
    """The numbers of kernels in graph launches and of all, in one call."""
    from torch.profiler import ProfilerActivity, profile
    with profile(activities=[ProfilerActivity.CPU,
                             ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    path = os.path.join(tempfile.mkdtemp(), "trace.json")
    profiler.export_chrome_trace(path)
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    launches = {
        event["args"]["correlation"]: event["name"]
        for event in events if event.get("cat") == "cuda_runtime"
        and "correlation" in event.get("args", {})}
    kernels = [event for event in events if event.get("cat") == "kernel"]
    inside = sum(
        launches.get(event["args"].get("correlation")) == "cudaGraphLaunch"
        for event in kernels)
    return inside, len(kernels)


def check(name, device, folder):
    make, inputs, segments, breaks, share = MODELS[name]
    torch.manual_seed(0)
    model = make().to(device)
    scripted = torch.jit.script(model)
    original = os.path.join(folder, "original.pt")
    partitioned = os.path.join(folder, "partitioned.pt")
    scripted.save(original)
    report = json.loads(torch.ops.pcg.partition_file(
        original, partitioned, graph_safe_ops=["torchvision::roi_align"],
        backend="host" if device == "cpu" else "auto"))
    module = torch.jit.load(partitioned)
    faults = []
    found = (len(report["segments"]), len(report["breaks"]))
    if segments is not None and found != (segments, breaks):
        faults.append(f"expected {segments} segments and {breaks} breaks, "
                      f"found {found[0]} and {found[1]}")
    with torch.no_grad():
        for turn in range(4):
            for index, make_input in enumerate(inputs):
                generator = torch.Generator().manual_seed(turn * 10 + index)
                arguments = to(make_input(generator), device)
                fault = difference(scripted(*arguments), module(*arguments))
                if fault:
                    faults.append(f"call {turn}, input {index}: {fault}")
        kernels = ""
        if device != "cpu":
            inside, total = replayed_kernels(lambda: module(*arguments))
            kernels = f"  {inside} of {total} kernels replayed"
            if inside < share * total:
                faults.append(f"expected {share:.0%} of the kernels in "
                              f"replays, found {inside} of {total}")
    statistics = json.loads(module.pcg_sequence.report())
    replays = sum(s["replays"] for s in statistics["segments"])
    parts = len(statistics["segments"])
    if replays == 0:
        faults.append("no segment was replayed")
    print(f"{'FAIL' if faults else 'pass'} {name}: {found[0]} segments "
          f"({parts} with parts), {found[1]} breaks, "
          f"coverage {report['coverage']:.0f} %, "
          f"{replays} replays{kernels}", flush=True)
    for fault in faults[:6]:
        print(f"     {fault}")
    return report, statistics, not faults


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--library", required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--reasons", action="store_true",
                        help="print each break, and why parts stay eager")
    parser.add_argument("models", nargs="*", metavar="MODEL")
    arguments = parser.parse_args()
    torch.ops.load_library(arguments.library)
    torch._C._jit_set_texpr_fuser_enabled(False)
    good = True
    for name in arguments.models or MODELS:
        with tempfile.TemporaryDirectory() as folder:
            report, statistics, passed = check(name, arguments.device, folder)
        good = good and passed
        if arguments.reasons:
            for found in report["breaks"] + report["possible_breaks"]:
                print(f"     {found['node']} at {found['source']}: "
                      f"{found['sentence']}")
            for segment in statistics["segments"]:
                for reason in segment["reasons"]:
                    print(f"     {segment['name']}: {reason}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
