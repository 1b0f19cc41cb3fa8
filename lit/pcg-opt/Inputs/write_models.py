"""Writes the TorchScript files that module.test works on into a folder."""

import os
import sys
import warnings
import zipfile

import torch

warnings.filterwarnings("ignore")
folder = sys.argv[1]


def path(name):
    return os.path.join(folder, name)


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x)).tanh().sigmoid()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
        self.state = torch.zeros(4)

    def forward(self, x):
        y = self.inner(x)
        if y.sum().item() > 0:
            y = y * 2
        self.state = y
        return y.relu().tanh().sigmoid().neg()

    @torch.jit.export
    def reset(self):
        self.state = torch.zeros(4)

    @torch.jit.export
    def _private(self, x):
        return x


torch.manual_seed(0)
model = torch.jit.script(Model()).eval()
extra = {"notes.txt": "hello", "folder/config.json": "{}"}
torch.jit.save(model, path("model.pt"), _extra_files=extra)
torch.jit.save(torch.jit.script(Model()), path("training.pt"))
torch.jit.save(torch.jit.freeze(model), path("frozen.pt"))
torch.jit.save(torch.jit.trace(Inner().eval(), torch.ones(2, 4)),
               path("traced.pt"))
torch.save(Model().state_dict(), path("weights.pt"))
torch.save({}, path("pickle.pt"), _use_new_zipfile_serialization=False)

with open(path("model.pt"), "rb") as file:
    data = file.read()
with open(path("truncated.pt"), "wb") as file:
    file.write(data[: len(data) // 2])
with open(path("flipped.pt"), "wb") as file:
    weights = data.index(model.inner.linear.weight.detach().numpy().tobytes())
    file.write(data[:weights] + bytes([data[weights] ^ 1]) + data[weights + 1:])


def rewrite(name, change):
    with zipfile.ZipFile(path("model.pt")) as old:
        with zipfile.ZipFile(path(name), "w") as new:
            for item in old.infolist():
                inner = item.filename.split("/", 1)[1]
                changed = change(inner, old.read(item.filename))
                if changed is not None:
                    new.writestr(item.filename, changed)


# Weights that were on a CUDA device when the file was written.
rewrite("cuda.pt", lambda name, data: data.replace(
    b"X\x03\x00\x00\x00cpu", b"X\x06\x00\x00\x00cuda:0")
    if name == "data.pkl" else data)
rewrite("foreign.pt", lambda name, data: data.replace(
    b"torch.sigmoid(", b"ops.mylib.sigmoid(") if name.endswith(".py") else data)

with zipfile.ZipFile(path("other.zip"), "w") as archive:
    archive.writestr("other/readme.txt", "hello")
with zipfile.ZipFile(path("bomb.pt"), "w", zipfile.ZIP_DEFLATED) as archive:
    for i in range(8):
        archive.writestr(f"bomb/data/{i}", bytes(1 << 26))
