"""Whether two results of a call are the same."""

import torch


def leaves(value):
    """The tensors and numbers of a result, in a fixed order."""
    if isinstance(value, dict):
        for key in sorted(value):
            yield from leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from leaves(element)
    elif value is not None:
        yield value


def copied(value):
    """The leaves, in memory that no later call writes."""
    return [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf
            for leaf in leaves(value)]


def difference(expected, found):
    """The largest difference of two lists of leaves, relative to the largest
    value of a tensor where that is above 1; infinite where they cannot be
    compared. The second value says whether they are equal in every bit."""
    if len(expected) != len(found):
        return float("inf"), False
    largest, identical = 0.0, True
    for a, b in zip(expected, found):
        if not isinstance(a, torch.Tensor) or not isinstance(b, torch.Tensor):
            if type(a) is not type(b) or a != b:
                return float("inf"), False
            continue
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf"), False
        if torch.equal(a, b) or a.numel() == 0:
            continue
        if torch.equal(a.isnan(), b.isnan()) and torch.equal(
                a.nan_to_num(), b.nan_to_num()):
            continue
        identical = False
        scale = max(1.0, a.double().abs().max().item())
        gap = (a.double() - b.double()).abs().max().item() / scale
        # A NaN compares false with everything; it is no agreement.
        largest = max(largest, gap if gap == gap else float("inf"))
    return largest, identical
