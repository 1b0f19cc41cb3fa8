"""Tests of pcg-opt and the passes, checked with FileCheck.

A test is a file `*.ir` or `*.test` with RUN lines. Beside `pcg-opt`, `pcg-run`,
`FileCheck` and `not` (as commands), RUN lines may use

    %python  a Python that has torch
    %libpcg  the library a host process loads
    %models  test/models, the scripts that write models
    %docs    docs
    %pcg-opt the path of pcg-opt, for scripts

and the usual %s, %t, %S, %T of lit. Tests may require `cuda` (a GPU),
`chromium`, `dot` or `localedef` (programs).
"""

import ctypes
import os
import re
import shutil

import lit.formats


def command_name(name):
    """Matches `name` as a whole command word, not within a path or option."""
    return r"(?<![\w./%+-])" + re.escape(name) + r"(?![\w./=+-])"


def gpu_is_visible():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        return (driver.cuInit(0) == 0
                and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
                and count.value > 0)
    except OSError:
        return False


config.name = "pcg"
config.test_format = lit.formats.ShTest(execute_external=True)
config.suffixes = [".ir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.pcg_binary_dir, "lit")

config.substitutions += [
    (command_name("pcg-opt"), os.path.join(config.pcg_bin_dir, "pcg-opt")),
    (command_name("pcg-run"), os.path.join(config.pcg_bin_dir, "pcg-run")),
    (command_name("FileCheck"), config.pcg_filecheck),
    (command_name("not"), config.pcg_not),
    ("%python", config.pcg_python),
    ("%libpcg", config.pcg_library),
    ("%models", os.path.join(config.pcg_source_dir, "test", "models")),
    ("%pcg-opt", os.path.join(config.pcg_bin_dir, "pcg-opt")),
    ("%docs", os.path.join(config.pcg_source_dir, "docs")),
]

# `PCG_BACKEND=host ctest` and the like must not change what a test means.
for variable in ("PCG_BACKEND", "PCG_LOG", "PCG_VERIFY"):
    config.environment.pop(variable, None)
for variable in ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"):
    if variable in os.environ:
        config.environment[variable] = os.environ[variable]

if gpu_is_visible():
    config.available_features.add("cuda")
for program in ("chromium", "dot", "localedef"):
    if shutil.which(program):
        config.available_features.add(program)
