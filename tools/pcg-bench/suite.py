"""The suite: which models are measured, at which size, on which inputs."""

import dataclasses
import os
import sys
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch

import networks

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "test", "models"))


class Unavailable(Exception):
    """A model or an entry cannot be measured here; the text says why."""


@dataclasses.dataclass
class Workload:
    """What one set of rows measures."""

    name: str
    # Eager PyTorch; None where only a TorchScript file exists.
    module: Optional[torch.nn.Module]
    # Returns a TorchScript module that shares the eager one's weights.
    script: Callable[[], torch.jit.ScriptModule]
    # Each is one call; they are called in turn.
    inputs: List[Tuple[Any, ...]]
    device: str
    # Largest difference from the reference that counts as the same result,
    # relative to the largest value of the tensor where that is above 1.
    tolerance: float = 1e-4
    gradients: bool = False
    # Puts state back that calls change.
    reset: Callable[[Any], None] = lambda module: None
    keep_methods: Tuple[str, ...] = ()
    graph_safe_ops: Tuple[str, ...] = ()
    # Why no graph can hold a whole call, where that is known.
    not_one_graph: str = ""
    # Builds the call by hand with a package of the same interface as
    # piecewise-cuda-graphs: by_hand(workload, package) -> call.
    by_hand: Optional[Callable] = None


@dataclasses.dataclass(frozen=True)
class Settings:
    """What builders need to know."""

    device: str
    tiny: bool = False
    silero: str = ""


HOST_READ = "the model reads values on the host"


def on(device, value):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, (list, tuple)):
        return type(value)(on(device, element) for element in value)
    if isinstance(value, dict):
        return {key: on(device, element) for key, element in value.items()}
    return value


def random(seed):
    return torch.Generator().manual_seed(seed)


def make(settings, name, module, inputs, **options) -> Workload:
    module = module.eval().requires_grad_(False).to(settings.device)
    return Workload(name, module, lambda: torch.jit.script(module),
                    on(settings.device, inputs), settings.device, **options)


def quick_start(settings, name):
    import by_hand
    size = 1024
    inputs = [(torch.randn(size, generator=random(i)) + shift,)
              for i, shift in enumerate((0.5, -0.5))]
    return make(settings, name, networks.QuickStart(), inputs,
                not_one_graph=HOST_READ, by_hand=by_hand.quick_start)


def empty(settings, name):
    inputs = [(torch.randn(1, generator=random(i)),) for i in range(2)]
    return make(settings, name, networks.Empty(8 if settings.tiny else 100),
                inputs, tolerance=0.0)


def gated_mlp(batch):
    def build(settings, name):
        import by_hand
        import gated_mlp as source
        width, layers = (32, 12) if settings.tiny else (512, 24)
        inputs = [(torch.randn(batch, width, generator=random(i)) + shift,)
                  for i, shift in enumerate((0.0, -20.0))]
        return make(settings, name, source.build("cpu", width, layers),
                    inputs, not_one_graph=HOST_READ,
                    by_hand=by_hand.gated_mlp)
    return build


def gpt2_decode(settings, name):
    import by_hand
    torch.manual_seed(0)
    if settings.tiny:
        module = networks.Decoder(97, 32, 2, 4, 16, 6)
    else:
        module = networks.Decoder(50257, 768, 12, 12, 256, 64)
    inputs = [(torch.tensor([token]),) for token in (11, 42)]
    return make(settings, name, module, inputs, tolerance=0.0,
                not_one_graph=HOST_READ, by_hand=by_hand.decode)


def early_exit_cnn(settings, name):
    torch.manual_seed(0)
    channels, blocks, size = (4, 1, 32) if settings.tiny else (64, 6, 128)
    module = networks.EarlyExit(channels, blocks, 4)
    for parameter in module.parameters():
        if parameter.dim() == 4:
            torch.nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        else:
            torch.nn.init.normal_(parameter, std=0.1)
    inputs = [(torch.rand(1, 3, size, size, generator=random(i)) * scale,)
              for i, scale in enumerate((0.01, 1000.0))]
    return make(settings, name, module, inputs, not_one_graph=HOST_READ)


def lstm_loop(settings, name):
    torch.manual_seed(0)
    width, steps = (16, 8) if settings.tiny else (256, 32)
    inputs = [(torch.randn(steps, 1, width, generator=random(i)),)
              for i in range(2)]
    return make(settings, name, networks.LstmLoop(width), inputs)


def potential(count):
    def build(settings, name):
        torch.manual_seed(0)
        width = 16 if settings.tiny else 128
        atoms = 8 if settings.tiny else count
        module = networks.Potential(width, blocks=3)
        inputs = [networks.atoms_on_lattice(atoms, random(i), 2.5,
                                            module.cutoff)
                  for i in range(2)]
        # Sums along edges are atomic additions, in no fixed order.
        return make(settings, name, module, inputs, gradients=True,
                    tolerance=1e-3)
    return build


def torchvision():
    try:
        import torchvision as library
    except (ImportError, RuntimeError) as error:
        raise Unavailable(
            f"torchvision cannot be imported ({first_line(error)})")
    return library


def first_line(error):
    lines = [line for line in str(error).splitlines() if line.strip()]
    text = lines[0].strip() if lines else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def image_model(constructor, size, half=False, tiny_size=64, tiny_options=None,
                images=1):
    """A torchvision model of images, with random weights."""
    def build(settings, name):
        library = torchvision()
        torch.manual_seed(0)
        function = library.models
        for part in constructor.split("."):
            function = getattr(function, part)
        options = tiny_options or {} if settings.tiny else {}
        # Half precision is for GPUs; processors run it slowly.
        narrow = half and settings.device != "cpu"
        kind = torch.float16 if narrow else torch.float32
        module = function(weights=None, **options).to(kind)
        sides = (tiny_size, tiny_size) if settings.tiny else size
        inputs = [tuple(torch.rand(1, 3, *sides, generator=random(7 * i + j))
                        .to(kind) for j in range(images)) for i in range(2)]
        return make(settings, name, module, inputs,
                    tolerance=2e-2 if narrow else 1e-3)
    return build


def detection_model(constructor, size, **options):
    """A torchvision detector, with random weights; it takes a list.

    Random weights score all classes alike, so the threshold is low: a
    detector that finds nothing skips half of its work.
    """
    def build(settings, name):
        library = torchvision()
        torch.manual_seed(0)
        resize = {}
        if settings.tiny and "ssd" not in constructor:
            resize = {"min_size": 64, "max_size": 96}
        module = getattr(library.models.detection, constructor)(
            weights=None, weights_backbone=None, **options, **resize)
        sides = (64, 96) if settings.tiny else size
        inputs = [([torch.rand(3, *sides, generator=random(i))],)
                  for i in range(2)]
        return make(settings, name, module, inputs, tolerance=1e-2,
                    not_one_graph=HOST_READ,
                    graph_safe_ops=("torchvision::roi_align",))
    return build


def silero_vad(settings, name):
    if not settings.silero:
        raise Unavailable("no file was given (--silero FILE)")
    if not os.path.isfile(settings.silero):
        raise Unavailable(f"{settings.silero}: no such file")
    rate, chunk = 16000, 512
    inputs = [(torch.randn(1, chunk, generator=random(i)).to(settings.device)
               * 0.1, rate) for i in range(4)]
    return Workload(
        name, None,
        lambda: torch.jit.load(settings.silero,
                               map_location=settings.device).eval(),
        inputs, settings.device, tolerance=1e-4,
        reset=lambda module: module.reset_states(),
        keep_methods=("reset_states",),
        not_one_graph="the model keeps state between calls that it replaces")


def user_file(path, specs):
    """A workload of a TorchScript file and of --input values."""
    def build(settings, name):
        import input_spec
        inputs = []
        for turn in range(2):
            torch.manual_seed(turn)
            inputs.append(on(settings.device, input_spec.arguments(specs)))
        return Workload(
            name, None,
            lambda: torch.jit.load(path, map_location=settings.device).eval(),
            inputs, settings.device, tolerance=1e-3)
    return build


BUILDERS: Dict[str, Callable[[Settings, str], Workload]] = {
    "empty": empty,
    "quick_start": quick_start,
    "gated_mlp_1": gated_mlp(1),
    "gated_mlp_8": gated_mlp(8),
    "gated_mlp_64": gated_mlp(64),
    "early_exit_cnn": early_exit_cnn,
    "lstm_loop": lstm_loop,
    "silero_vad": silero_vad,
    "potential_64": potential(64),
    "potential_512": potential(512),
    "gpt2_decode": gpt2_decode,
    "resnet50_fp16": image_model("resnet50", (224, 224), half=True),
    "efficientnet_b0": image_model("efficientnet_b0", (224, 224)),
    "vit_b16_fp16": image_model("vit_b_16", (224, 224), half=True,
                                tiny_options={"image_size": 64}),
    "swin_t": image_model("swin_t", (224, 224)),
    "raft_small": image_model("optical_flow.raft_small", (256, 320),
                              tiny_size=128, images=2),
    "ssdlite": detection_model("ssdlite320_mobilenet_v3_large", (320, 320),
                               score_thresh=0.005, detections_per_img=10),
    "mask_rcnn": detection_model("maskrcnn_resnet50_fpn", (480, 640),
                                 box_score_thresh=0.005,
                                 box_detections_per_img=10),
}
