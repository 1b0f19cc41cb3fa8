"""What pcg-bench runs: modules as their authors would write them."""

import dataclasses
import math
import os
import sys
from typing import Callable, Final, List, Optional, Tuple

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "test", "models"))
import gated_mlp  # noqa: E402


@dataclasses.dataclass
class Workload:
    """A module, ready on its device, and arguments for each call.

    `arguments(i)` makes those of call `i`, in memory that no call has seen.
    `tolerance` is the largest difference from eager results, relative to the
    largest value, that counts as agreement; 0 asks for equal bits.
    """
    module: nn.Module
    arguments: Callable[[int], tuple]
    tolerance: float = 0.0
    # True for a module that is a scripted one already, loaded from a file.
    scripted: bool = False


class Missing(Exception):
    """A workload or entry that cannot be had here; the text says why."""


def random_inputs(device, *shapes, dtype=torch.float32, scale=1.0):
    def arguments(i):
        generator = torch.Generator().manual_seed(i)
        return tuple((torch.rand(shape, generator=generator) * scale)
                     .to(device, dtype) for shape in shapes)
    return arguments


# ---- small kernels and host reads ------------------------------------------

class Overhead(nn.Module):
    """Eight kernels with nothing to do."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = x + 1
        return x


def overhead(device, tiny):
    return Workload(Overhead(), random_inputs(device, (1,)))


def gated(batch):
    def make(device, tiny):
        width, layers = (32, 6) if tiny else (512, 24)
        # Every fourth input keeps the first gates closed.
        def arguments(i):
            generator = torch.Generator().manual_seed(i)
            x = torch.randn(batch, width, generator=generator)
            return ((x - 20 * (i % 4 == 3)).to(device),)
        return Workload(gated_mlp.build(device, width, layers), arguments,
                        tolerance=1e-5)
    return make


class EarlyExit(nn.Module):
    """A CNN that stops at the first head that is sure enough."""

    def __init__(self, width: int, stages: int):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1),
                          nn.BatchNorm2d(width), nn.ReLU(),
                          nn.Conv2d(width, width, 3, padding=1),
                          nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(stages))
        self.heads = nn.ModuleList(nn.Linear(width, 10) for _ in range(stages))

    def forward(self, x: torch.Tensor, sure: float) -> torch.Tensor:
        x = self.stem(x)
        result = torch.zeros(x.size(0), 10, device=x.device)
        done = False
        for stage, head in zip(self.stages, self.heads):
            if not done:
                x = x + stage(x)
                result = head(x.mean([2, 3])).softmax(-1)
                done = result.max().item() > sure
        return result


def early_exit(device, tiny):
    width, side = (8, 16) if tiny else (64, 32)
    images = random_inputs(device, (1, 3, side, side))
    return Workload(EarlyExit(width, 4).eval().to(device),
                    lambda i: (*images(i), 0.2 if i % 2 else 2.0),
                    tolerance=1e-4)


class LstmLoop(nn.Module):
    """An LSTM cell, one step after the other."""

    def __init__(self, width: int):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[0])
        c = torch.zeros_like(x[0])
        outputs: List[torch.Tensor] = []
        for step in x.unbind(0):
            h, c = self.cell(step, (h, c))
            outputs.append(h)
        return torch.stack(outputs)


def lstm_loop(device, tiny):
    width, steps = (8, 4) if tiny else (256, 32)
    return Workload(LstmLoop(width).to(device),
                    random_inputs(device, (steps, 1, width)), tolerance=1e-5)


# ---- a language model ------------------------------------------------------

class DecoderBlock(nn.Module):

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.heads: Final[int] = heads
        self.scale: Final[float] = 1 / math.sqrt(width // heads)
        self.norm_1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        cache = torch.zeros(1, heads, length, width // heads)
        self.register_buffer("keys", cache)
        self.register_buffer("values", cache.clone())

    def forward(self, x: torch.Tensor, position: torch.Tensor,
                hidden: torch.Tensor) -> torch.Tensor:
        q, k, v = self.attention(self.norm_1(x)).view(
            1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        self.keys.index_copy_(2, position, k)
        self.values.index_copy_(2, position, v)
        scores = torch.matmul(q, self.keys.transpose(-1, -2)) * self.scale
        weights = scores.masked_fill(hidden, -1e9).softmax(-1)
        mixed = torch.matmul(weights, self.values).transpose(1, 2).reshape(
            1, 1, -1)
        x = x + self.project(mixed)
        return x + self.contract(
            torch.nn.functional.gelu(self.expand(self.norm_2(x))))


class Decoder(nn.Module):
    """Greedy decoding with a static cache; the host looks at each token."""

    def __init__(self, width: int, heads: int, layers: int, words: int,
                 length: int):
        super().__init__()
        self.length: Final[int] = length
        self.words = nn.Embedding(words, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(DecoderBlock(width, heads, length)
                                    for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))
        self.register_buffer("places", torch.arange(length))

    def forward(self, token: torch.Tensor, stop: int) -> List[int]:
        self.position.zero_()
        tokens: List[int] = []
        for _ in range(self.length):
            x = self.words(token) + self.positions(self.position)
            x = x.unsqueeze(0)
            hidden = self.places > self.position
            for block in self.blocks:
                x = block(x, self.position, hidden)
            logits = torch.matmul(self.norm(x)[0], self.words.weight.t())
            token = logits.argmax(-1)
            self.position.add_(1)
            word = int(token.item())
            tokens.append(word)
            if word == stop:
                break
        return tokens


def decode(device, tiny):
    sizes = (32, 2, 2, 64, 6) if tiny else (768, 12, 12, 50257, 64)
    module = Decoder(*sizes).eval().to(device)
    return Workload(module, lambda i: (
        torch.tensor([1 + i % 50]).to(device), -1))


# ---- an interatomic potential ----------------------------------------------

class Interaction(nn.Module):

    def __init__(self, width: int):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(16, width), nn.SiLU(),
                                    nn.Linear(width, width))
        self.update = nn.Sequential(nn.Linear(width, width), nn.SiLU(),
                                    nn.Linear(width, width))

    def forward(self, features: torch.Tensor, radial: torch.Tensor,
                sender: torch.Tensor, receiver: torch.Tensor) -> torch.Tensor:
        messages = features.index_select(0, sender) * self.filter(radial)
        gathered = torch.zeros_like(features).index_add(0, receiver, messages)
        return features + self.update(gathered)


class Potential(nn.Module):
    """Energies by message passing, forces by a gradient in forward."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.species = nn.Embedding(4, width)
        self.blocks = nn.ModuleList(Interaction(width) for _ in range(blocks))
        self.readout = nn.Linear(width, 1)
        self.register_buffer("centres", torch.linspace(0, 5, 16))

    def forward(self, places: torch.Tensor, kinds: torch.Tensor,
                sender: torch.Tensor, receiver: torch.Tensor
                ) -> Tuple[torch.Tensor, torch.Tensor]:
        places = places.detach().clone().requires_grad_(True)
        between = (places.index_select(0, receiver)
                   - places.index_select(0, sender))
        distance = (between * between).sum(-1).add(1e-6).sqrt()
        radial = torch.exp(-(distance.unsqueeze(-1) - self.centres).pow(2))
        features = self.species(kinds)
        for block in self.blocks:
            features = block(features, radial, sender, receiver)
        energy = self.readout(features).sum()
        gradient = torch.autograd.grad([energy], [places])[0]
        assert gradient is not None
        return energy.detach(), -gradient


def potential(atoms):
    def make(device, tiny):
        count, width = (8, 8) if tiny else (atoms, 128)
        degree = min(24, count - 1)
        generator = torch.Generator().manual_seed(0)
        receiver = torch.arange(count).repeat_interleave(degree)
        sender = (receiver + 1 + torch.arange(degree).repeat(count)) % count
        kinds = torch.randint(4, (count,), generator=generator)
        fixed = [t.to(device) for t in (kinds, sender, receiver)]
        places = random_inputs(device, (count, 3), scale=8.0)
        module = Potential(width, 4).to(device).requires_grad_(False)
        # index_add adds in another order each time on a GPU.
        return Workload(module, lambda i: (*places(i), *fixed),
                        tolerance=1e-3)
    return make


# ---- vision ----------------------------------------------------------------

def vision(name, shape=(1, 3, 224, 224), dtype=torch.float32, count=1,
           where="models"):
    def make(device, tiny):
        try:
            import torchvision
        except (ImportError, RuntimeError) as error:
            raise Missing(f"torchvision cannot be imported ({error})")
        package = torchvision
        for part in where.split("."):
            package = getattr(package, part)
        options = {"weights": None}
        if "detection" in where:
            options["weights_backbone"] = None
        if device == "cpu" and dtype == torch.float16:
            raise Missing("half precision is for GPUs")
        size = shape
        if tiny and name not in ("vit_b_16", "raft_small"):
            size = (*shape[:2], 96, 96)
        module = getattr(package, name)(**options).eval().to(device, dtype)
        images = random_inputs(device, *[size] * count, dtype=dtype)
        if "detection" in where:
            return Workload(module, lambda i: (list(images(i)[0].unbind(0)),),
                            tolerance=1e-4)
        return Workload(module, images,
                        tolerance=2e-2 if dtype == torch.float16 else 1e-3)
    return make


WORKLOADS = {
    "overhead": overhead,
    "gated_mlp_1": gated(1),
    "gated_mlp_8": gated(8),
    "gated_mlp_64": gated(64),
    "gpt2_decode": decode,
    "early_exit": early_exit,
    "lstm_loop": lstm_loop,
    "potential_64": potential(64),
    "potential_512": potential(512),
    "resnet50_fp16": vision("resnet50", dtype=torch.float16),
    "efficientnet_b0": vision("efficientnet_b0"),
    "vit_b_16_fp16": vision("vit_b_16", dtype=torch.float16),
    "swin_t": vision("swin_t"),
    "raft_small": vision("raft_small", (1, 3, 128, 128), count=2,
                         where="models.optical_flow"),
    "ssdlite": vision("ssdlite320_mobilenet_v3_large", (1, 3, 320, 320),
                      where="models.detection"),
    "mask_rcnn": vision("maskrcnn_resnet50_fpn", (1, 3, 320, 320),
                        where="models.detection"),
}


def from_file(path, specifications, device):
    """A user's own file; arguments as `f32[1,3,224,224]`."""
    module = torch.jit.load(path, map_location=device).eval()
    shapes = [parse_input(text) for text in specifications]

    def arguments(i):
        generator = torch.Generator().manual_seed(i)
        made = []
        for dtype, shape in shapes:
            if dtype.is_floating_point:
                made.append(torch.rand(shape, generator=generator))
            else:
                made.append(torch.randint(2, shape, generator=generator))
            made[-1] = made[-1].to(device, dtype)
        return tuple(made)
    return Workload(module, arguments, tolerance=1e-3, scripted=True)


DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
          "f64": torch.float64, "i32": torch.int32, "i64": torch.int64,
          "bool": torch.bool}


def parse_input(text) -> Tuple[torch.dtype, List[int]]:
    name, bracket, rest = text.partition("[")
    dtype: Optional[torch.dtype] = DTYPES.get(name)
    sizes = rest[:-1].split(",") if rest.endswith("]") and rest != "]" else []
    if rest == "]" and dtype is not None:
        return dtype, []
    if (dtype is None or not bracket or not sizes
            or not all(size.strip().isdigit() for size in sizes)):
        raise ValueError(
            f"expected an input such as f32[1,3,224,224] with one of the "
            f"types {', '.join(DTYPES)}, found '{text}'")
    return dtype, [int(size) for size in sizes]
