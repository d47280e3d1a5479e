"""cc_library, cc_binary and cc_test as all BUILD files of this repository load them.

A flag and the dependency that it needs come from here together: when g++ uses a precompiled header, it does not list it
among the files that it read, so Bazel could not see that an undeclared one was used.
"""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")
load("//tools/build_rules:precompiled.bzl", "STANDARD_HEADERS")

# Rooms that call ops, plan, write kernels as text or run once per job. They have no loop over data, so a fast compilation
# counts for more than fast code.
_PLANNING = [
    "compiler/jit",
    "compiler/targets/cpu/print",
    "compiler/targets/cuda/attention",
    "compiler/targets/cuda/gemm",
    "compiler/targets/cuda/intrinsics",
    "compiler/targets/cuda/nvrtc",
    "compiler/targets/cuda/ops",
    "compiler/targets/cuda/print",
    "distributed/control",
    "distributed/diagnose",
    "distributed/launch",
    "distributed/overlap",
    "distributed/pipeline",
    "distributed/placement",
    "distributed/plan",
    "distributed/propagate",
    "distributed/stages",
    "distributed/strategies",
    "models/gpt",
    "models/llama",
    "models/moe",
    "models/nn",
    "models/optim",
    "models/train",
    "ops/composite",
]

def _with_flags(kwargs, standard_headers):
    if not kwargs.get("srcs"):
        return kwargs
    copts = ["-O1"] if native.package_name() in _PLANNING else []
    if standard_headers:
        copts = copts + select({
            "//tools/build_rules:own_includes": [],
            "//conditions:default": ["-include", STANDARD_HEADERS],
        })
        kwargs["deps"] = kwargs.get("deps", []) + ["//framework/base:standard_headers"]
    kwargs["copts"] = copts + kwargs.get("copts", [])
    return kwargs

def cc_library(standard_headers = True, **kwargs):
    """A C++ library. Kernels say standard_headers = False: their instruction sets differ from the precompiled header's."""
    _cc_library(**_with_flags(kwargs, standard_headers))

def cc_binary(standard_headers = True, **kwargs):
    _cc_binary(**_with_flags(kwargs, standard_headers))

def cc_test(standard_headers = True, **kwargs):
    _cc_test(**_with_flags(kwargs, standard_headers))
