"""Macros for the common targets of BUILD files."""

load("//tools/build_rules:cc.bzl", "cc_library", "cc_test")

def weft_library(name, **kwargs):
    """A library with the files NAME.h and NAME.cc."""
    cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
        **kwargs
    )

def weft_test(name, deps, srcs = None, size = "small", **kwargs):
    """A small test with GoogleTest's main; its source is NAME.cc unless `srcs` is given."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs or [name + ".cc"],
        deps = deps + ["//third_party/gtest:gtest_main"],
        **kwargs
    )

def python_test(name, size = "small", **kwargs):
    """A small test that is a program in Python, NAME.py."""
    native.sh_test(
        name = name,
        size = size,
        srcs = [name + ".py"],
        **kwargs
    )

def fuzz_test(name, deps):
    """A test whose targets (framework/testing/fuzz.h) read damaged inputs: few here, many by tools/ci/fuzz."""
    cc_test(
        name = name,
        size = "small",
        srcs = [name + ".cc"],
        tags = ["fuzz"],
        deps = deps + ["//framework/testing:fuzz"],
    )
