"""One whole CUDA graph of a call, its bare launch, and its scheduling floor."""

import ctypes

import torch

import suite

_SWITCHABLE = (0, 1, 2)  # kernel, memcpy and memset nodes


def _runtime():
    """The CUDA runtime library that torch has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libcudart" in line}
    if not paths:
        raise suite.Unavailable("torch has loaded no libcudart")
    return ctypes.CDLL(sorted(paths)[0])


def _check(status):
    if status:
        raise RuntimeError(f"the CUDA runtime returned error {status}")


def _leave_failed_capture():
    """The generator stays in capture after one that fails; a capture that
    works takes it out."""
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            torch.zeros(1, device="cuda").add_(1)
    except RuntimeError:
        pass


class WholeGraph:
    """A call captured once; inputs are copied in, results are overwritten by
    the next call."""

    def __init__(self, module, arguments):
        self.arguments = _static(arguments)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                module(*self.arguments)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph(keep_graph=True)
        try:
            with torch.cuda.graph(self.graph):
                self.result = module(*self.arguments)
        except BaseException:
            _leave_failed_capture()
            raise
        self.graph.instantiate()

    def __call__(self, *arguments):
        _copy(self.arguments, arguments)
        self.graph.replay()
        return self.result


def _static(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(_static(element) for element in value)
    return value


def _copy(target, source):
    if isinstance(target, torch.Tensor):
        target.copy_(source)
    elif isinstance(target, (list, tuple)):
        for a, b in zip(target, source):
            _copy(a, b)


class BareLaunch:
    """cudaGraphLaunch of a captured graph and nothing else. With `empty`, all
    of its nodes are switched off: what is left is the scheduling."""

    def __init__(self, whole, empty=False):
        self.whole = whole  # owns the memory
        self.runtime = _runtime()
        self.executable = ctypes.c_void_p()
        graph = ctypes.c_void_p(whole.graph.raw_cuda_graph())
        _check(self.runtime.cudaGraphInstantiateWithFlags(
            ctypes.byref(self.executable), graph, ctypes.c_ulonglong(0)))
        if empty:
            self._switch_off(graph)
        self.stream = ctypes.c_void_p(
            torch.cuda.current_stream().cuda_stream)

    def _switch_off(self, graph):
        count = ctypes.c_size_t()
        _check(self.runtime.cudaGraphGetNodes(graph, None,
                                              ctypes.byref(count)))
        nodes = (ctypes.c_void_p * count.value)()
        _check(self.runtime.cudaGraphGetNodes(graph, nodes,
                                              ctypes.byref(count)))
        kind = ctypes.c_int()
        for node in nodes:
            node = ctypes.c_void_p(node)
            _check(self.runtime.cudaGraphNodeGetType(node,
                                                     ctypes.byref(kind)))
            if kind.value in _SWITCHABLE:
                _check(self.runtime.cudaGraphNodeSetEnabled(
                    self.executable, node, ctypes.c_uint(0)))

    def __call__(self, *arguments):
        _check(self.runtime.cudaGraphLaunch(self.executable, self.stream))
        return self.whole.result
