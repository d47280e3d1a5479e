"""isa_library: one text compiled per instruction set, each in its own namespace (WEFT_ISA_NS)."""

load("//tools/build_rules:cc.bzl", "cc_library", "cc_test")

_MARCH = {
    "avx2": "x86-64-v3",
    "avx512": "x86-64-v4",
    "baseline": "x86-64-v2",
}

# Instrumented -O3 takes minutes per file.
OPTIMIZED = select({
    "//ops/kernels:sanitizer": ["-O1"],
    "//conditions:default": ["-O3"],
})

def isa_library(name, srcs, hdrs = [], textual_hdrs = [], deps = []):
    """A library of srcs compiled once for each instruction set.

    Nothing in srcs may instantiate inline code of other libraries: the linker could then pick the copy compiled
    for an instruction set that the machine lacks.
    """
    for isa, march in _MARCH.items():
        cc_library(
            name = "%s_%s" % (name, isa),
            srcs = srcs,
            hdrs = hdrs,
            standard_headers = False,
            textual_hdrs = textual_hdrs,
            copts = OPTIMIZED + [
                "-march=" + march,
                "-mprefer-vector-width=512",
                "-DWEFT_ISA_NS=" + isa,
                "-fwrapv",
                "-fno-trapping-math",
                "-Wno-psabi",
                # g++ 12 lays out the fake stack without the alignment that vectors need (GCC bug 110027).
                "--param=asan-use-after-return=0",
            ],
            linkstatic = True,
            visibility = ["//visibility:private"],
            deps = deps,
        )
    cc_library(
        name = name,
        visibility = ["//visibility:private"],
        deps = [":%s_%s" % (name, isa) for isa in _MARCH],
    )

def isa_test(name, srcs, deps, **kwargs):
    """A cc_test run once under each WEFT_ISA; where the machine lacks a set, its tests are skipped with the reason."""
    for isa in _MARCH:
        cc_test(
            name = "%s_%s" % (name, isa),
            size = "small",
            srcs = srcs,
            env = {"WEFT_ISA": isa},
            deps = deps + [":isa_test_main"],
            **kwargs
        )
