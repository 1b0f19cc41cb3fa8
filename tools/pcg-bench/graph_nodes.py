"""CUDA Runtime calls on a captured graph that torch has no Python for."""

import ctypes

import torch

KERNEL_NODE = 0  # cudaGraphNodeTypeKernel


def runtime():
    """The library that torch has loaded; it is in the process already."""
    name = f"libcudart.so.{torch.version.cuda.split('.')[0]}"
    return ctypes.CDLL(name)


def check(error, what):
    if error != 0:
        raise RuntimeError(f"{what} failed with CUDA error {error}")


def disable_kernels(graph):
    """Turns off each kernel of an instantiated torch.cuda.CUDAGraph that was
    made with keep_graph=True. Returns their number."""
    library = runtime()
    raw = ctypes.c_void_p(graph.raw_cuda_graph())
    executable = ctypes.c_void_p(graph.raw_cuda_graph_exec())
    count = ctypes.c_size_t()
    check(library.cudaGraphGetNodes(raw, None, ctypes.byref(count)),
          "cudaGraphGetNodes")
    nodes = (ctypes.c_void_p * count.value)()
    check(library.cudaGraphGetNodes(raw, nodes, ctypes.byref(count)),
          "cudaGraphGetNodes")
    disabled = 0
    for node in nodes:
        kind = ctypes.c_int()
        check(library.cudaGraphNodeGetType(ctypes.c_void_p(node),
                                           ctypes.byref(kind)),
              "cudaGraphNodeGetType")
        if kind.value != KERNEL_NODE:
            continue
        check(library.cudaGraphNodeSetEnabled(
            executable, ctypes.c_void_p(node), ctypes.c_uint(0)),
            "cudaGraphNodeSetEnabled")
        disabled += 1
    return disabled
