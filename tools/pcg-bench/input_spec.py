"""--input values, written as for pcg-run.

    f32[1,3,224,224]   i64[8](0,100)   f32[8](0.5)   3   -0.5   true   None
    "text"   [a, b]   (a, b)   {"key": a}   @file.pt   *@file.pt
"""

import re

TYPES = {"f64": "float64", "f32": "float32", "f16": "float16",
         "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i16": "int16",
         "i8": "int8", "u8": "uint8", "bool": "bool", "c64": "complex64",
         "c128": "complex128"}
_TENSOR = re.compile(r"(\w+)\[([\d\s,]*)\](?:\(([^()]*)\))?")
_WORD = re.compile(r"[\w.+-]+")


class BadSpec(Exception):
    """The text cannot be read; the message names the column."""


class _Parser:

    def __init__(self, text):
        self.text, self.at = text, 0

    def fail(self, message):
        raise BadSpec(f"--input='{self.text}', column {self.at + 1}: "
                      f"{message}")

    def peek(self):
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        return self.text[self.at:self.at + 1]

    def take(self, mark):
        if self.peek() != mark:
            return False
        self.at += 1
        return True

    def whole(self):
        spread = self.take("*")
        node = self.value()
        if spread and node[0] != "file":
            self.fail("expected a file behind '*'")
        if self.peek():
            self.fail(f"expected the end, found '{self.text[self.at:]}'")
        return ("spread", node) if spread else node

    def items(self, close, item):
        found, comma = [], False
        while not self.take(close):
            if found and not comma:
                self.fail(f"expected ',' or '{close}'")
            found.append(item())
            comma = self.take(",")
        return found, comma

    def pair(self):
        key = self.value()
        if not self.take(":"):
            self.fail("expected ':'")
        return key, self.value()

    def value(self):
        mark = self.peek()
        if self.take("["):
            return "list", self.items("]", self.value)[0]
        if self.take("("):
            found, comma = self.items(")", self.value)
            if len(found) == 1 and not comma:  # Mere brackets.
                return found[0]
            return "tuple", found
        if self.take("{"):
            return "dict", self.items("}", self.pair)[0]
        if mark and mark in "'\"":
            end = self.text.find(mark, self.at + 1)
            if end < 0:
                self.fail(f"expected {mark} at the end of the string")
            text, self.at = self.text[self.at + 1:end], end + 1
            return "value", text
        if self.take("@"):
            found = re.compile(r"[^,\])}]*").match(self.text, self.at)
            self.at = found.end()
            if not found.group().strip():
                self.fail("expected a file name behind '@'")
            return "file", found.group().strip()
        return self.word()

    def word(self):
        found = _TENSOR.match(self.text, self.at)
        if found:
            return self.tensor(found)
        found = _WORD.match(self.text, self.at)
        word = found.group() if found else ""
        known = {"None": None, "true": True, "True": True, "false": False,
                 "False": False}
        if word in known:
            self.at = found.end()
            return "value", known[word]
        for kind in (int, float):
            try:
                value = kind(word)
            except ValueError:
                continue
            self.at = found.end()
            return "value", value
        self.fail("expected a value such as f32[2,3], 4, 0.5, true, None, "
                  f"\"text\", [..], (..), {{..}} or @file, found "
                  f"'{self.text[self.at:self.at + 20]}'")

    def tensor(self, found):
        kind, sizes, bounds = found.groups()
        if kind not in TYPES:
            self.fail(f"unknown element type '{kind}'; expected one of "
                      + ", ".join(TYPES))
        try:
            sizes = [int(size) for size in sizes.split(",") if size.strip()]
            bounds = [float(b) for b in bounds.split(",")] if bounds else []
        except ValueError as error:
            self.fail(str(error))
        if len(bounds) > 2 or (len(bounds) == 2 and bounds[0] >= bounds[1]):
            self.fail("expected a value, or a lower and a greater upper bound")
        self.at = found.end()
        return "tensor", (kind, sizes, bounds)


def parse(text):
    """What `text` stands for; reads no file. Throws BadSpec."""
    return _Parser(text).whole()


def _tensor(kind, sizes, bounds):
    import torch
    kind = getattr(torch, TYPES[kind])
    if len(bounds) == 1:
        return torch.full(sizes, bounds[0]).to(kind)
    if not kind.is_floating_point and not kind.is_complex:
        low, high = bounds or (0, 2 if kind == torch.bool else 10)
        return torch.randint(int(low), int(high), sizes).to(kind)
    if not bounds:
        return torch.randn(sizes).to(kind)
    return (torch.rand(sizes) * (bounds[1] - bounds[0]) + bounds[0]).to(kind)


def _make(node):
    kind, content = node
    if kind == "tensor":
        return _tensor(*content)
    if kind == "file":
        import torch
        return torch.load(content, map_location="cpu", weights_only=True)
    if kind in ("list", "tuple"):
        made = [_make(element) for element in content]
        return made if kind == "list" else tuple(made)
    if kind == "dict":
        return {_make(key): _make(value) for key, value in content}
    return content


def arguments(specs):
    """The arguments of one call, made from torch's default generator."""
    made = []
    for spec in specs:
        if spec[0] == "spread":
            made += _make(spec[1])
        else:
            made.append(_make(spec))
    return tuple(made)
