"""The networks of the suite that are written for it, as plain modules.

Each one scripts as it is; nothing in them knows of CUDA graphs.
"""

from typing import Final, List, Tuple

import torch
from torch import nn
from torch.nn import functional


class QuickStart(nn.Module):
    """Three kernels and a decision made on the host between them."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 0:
            y.clamp_(min=0)
        y.add_(1.0)
        return y


class Empty(nn.Module):
    """A chain of kernels that do nothing to speak of: overhead alone."""

    length: Final[int]

    def __init__(self, length: int):
        super().__init__()
        self.length = length

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(self.length):
            x = x + 1.0
        return x


class DecoderLayer(nn.Module):
    """One layer of GPT-2 for a single token, with a cache of fixed size."""

    heads: Final[int]
    size: Final[int]

    def __init__(self, width: int, heads: int, length: int):
        super().__init__()
        self.heads = heads
        self.size = width // heads
        self.before_attention = nn.LayerNorm(width)
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)
        self.before_expansion = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)
        shape = (1, heads, length, self.size)
        self.register_buffer("keys", torch.zeros(shape))
        self.register_buffer("values", torch.zeros(shape))

    def forward(self, x: torch.Tensor, position: torch.Tensor,
                mask: torch.Tensor) -> torch.Tensor:
        query, key, value = self.project_in(
            self.before_attention(x)).chunk(3, dim=-1)
        shape = (1, self.heads, 1, self.size)
        self.keys.index_copy_(2, position, key.reshape(shape))
        self.values.index_copy_(2, position, value.reshape(shape))
        found = functional.scaled_dot_product_attention(
            query.reshape(shape), self.keys, self.values, attn_mask=mask)
        x = x + self.project_out(found.reshape(1, self.heads * self.size))
        hidden = functional.gelu(self.expand(self.before_expansion(x)),
                                 approximate="tanh")
        return x + self.contract(hidden)


class Decoder(nn.Module):
    """Greedy decoding with the loop inside; each token is read on the host."""

    tokens: Final[int]
    end: Final[int]

    def __init__(self, vocabulary: int, width: int, layers: int, heads: int,
                 length: int, tokens: int):
        super().__init__()
        self.tokens = tokens
        self.end = vocabulary - 1
        self.embed = nn.Embedding(vocabulary, width)
        self.embed_position = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            DecoderLayer(width, heads, length) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("places", torch.arange(length))
        # Large enough that a token says which ones may follow.
        nn.init.normal_(self.embed.weight, std=0.5)

    def step(self, token: torch.Tensor, position: torch.Tensor
             ) -> Tuple[torch.Tensor, torch.Tensor]:
        """The next token and its position; both of shape [1]."""
        x = self.embed(token) + self.embed_position(position)
        mask = (self.places <= position).unsqueeze(0)
        for layer in self.layers:
            x = layer(x, position, mask)
        scores = functional.linear(self.norm(x), self.embed.weight)
        return scores.argmax(dim=-1), position + 1

    def forward(self, token: torch.Tensor) -> List[int]:
        position = torch.zeros_like(token)
        found: List[int] = []
        for _ in range(self.tokens):
            token, position = self.step(token, position)
            value = int(token.item())
            found.append(value)
            if value == self.end:
                break
        return found


class ExitStage(nn.Module):

    def __init__(self, channels_in: int, channels: int, blocks: int,
                 classes: int):
        super().__init__()
        layers: List[nn.Module] = [
            nn.Conv2d(channels_in, channels, 3, stride=2, padding=1,
                      bias=False), nn.ReLU()]
        for _ in range(blocks):
            layers += [nn.Conv2d(channels, channels, 3, padding=1,
                                 bias=False), nn.ReLU()]
        self.body = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes, bias=False)

    def forward(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        x = self.body(x)
        return x, self.head(x.mean(dim=(2, 3)))


class EarlyExit(nn.Module):
    """A CNN that answers at the first stage that is sure enough.

    Without biases the scores grow with the input, so that bright images leave
    early and dark ones go through all stages.
    """

    sure: Final[float]

    def __init__(self, channels: int, blocks: int, stages: int,
                 classes: int = 10):
        super().__init__()
        self.sure = 0.9
        widths = [3] + [channels * 2 ** min(i, 2) for i in range(stages)]
        self.stages = nn.ModuleList(
            ExitStage(a, b, blocks, classes)
            for a, b in zip(widths, widths[1:]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x
        for stage in self.stages:
            x, scores = stage(x)
            if scores.softmax(dim=-1).max().item() > self.sure:
                return scores
        return scores


class LstmLoop(nn.Module):
    """An LSTM cell called once a step of the sequence."""

    def __init__(self, width: int):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.zeros_like(x[0])
        c = torch.zeros_like(x[0])
        for t in range(x.size(0)):
            h, c = self.cell(x[t], (h, c))
        return h


class Interaction(nn.Module):
    """One round of messages along the edges between atoms."""

    def __init__(self, width: int, radial: int):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(radial, width), nn.SiLU(),
                                    nn.Linear(width, width))
        self.send = nn.Linear(width, width, bias=False)
        self.update = nn.Sequential(nn.Linear(width, width), nn.SiLU(),
                                    nn.Linear(width, width))

    def forward(self, x: torch.Tensor, radial: torch.Tensor,
                cutoff: torch.Tensor, senders: torch.Tensor,
                receivers: torch.Tensor) -> torch.Tensor:
        weights = self.filter(radial) * cutoff
        messages = self.send(x).index_select(0, senders) * weights
        received = torch.zeros_like(x).index_add(0, receivers, messages)
        return x + self.update(received)


class Potential(nn.Module):
    """Energy of a set of atoms, and its negative gradient as forces.

    Runs with gradients enabled, as the programs that call such models do.
    """

    cutoff: Final[float]
    radial: Final[int]

    def __init__(self, width: int, blocks: int, radial: int = 8,
                 cutoff: float = 5.0, species: int = 4):
        super().__init__()
        self.cutoff = cutoff
        self.radial = radial
        self.embed = nn.Embedding(species, width)
        self.blocks = nn.ModuleList(
            Interaction(width, radial) for _ in range(blocks))
        self.read_out = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(),
                                      nn.Linear(width // 2, 1))
        self.register_buffer("frequencies",
                             torch.arange(1, radial + 1) * torch.pi / cutoff)

    def forward(self, positions: torch.Tensor, species: torch.Tensor,
                edges: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        p = positions.detach().requires_grad_(True)
        senders, receivers = edges[0], edges[1]
        between = p.index_select(0, receivers) - p.index_select(0, senders)
        distance = between.square().sum(dim=1, keepdim=True).sqrt()
        radial = torch.sin(distance * self.frequencies) / distance
        reach = 0.5 * (torch.cos(distance * (torch.pi / self.cutoff)) + 1.0)
        x = self.embed(species)
        for block in self.blocks:
            x = block(x, radial, reach, senders, receivers)
        energy = self.read_out(x).sum()
        gradient = torch.autograd.grad([energy], [p])[0]
        assert gradient is not None
        return energy.detach(), -gradient


def atoms_on_lattice(count: int, generator: torch.Generator, spacing: float,
                     cutoff: float):
    """Positions, species and edges (both ways) of a disturbed cubic lattice."""
    side = 1
    while side ** 3 < count:
        side += 1
    grid = torch.stack(torch.meshgrid(
        *(torch.arange(side, dtype=torch.float32),) * 3, indexing="ij"),
        dim=-1).reshape(-1, 3)[:count] * spacing
    positions = grid + 0.1 * torch.randn(count, 3, generator=generator)
    species = torch.randint(0, 4, (count,), generator=generator)
    # Of the lattice itself, so that inputs differ in values and not in size.
    near = torch.cdist(grid, grid) < cutoff
    near.fill_diagonal_(False)
    edges = near.nonzero().t().contiguous()
    return positions, species, edges
