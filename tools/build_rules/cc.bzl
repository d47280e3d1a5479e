"""cc_library, cc_binary, cc_test and short forms of them, as all BUILD files of this repository load them.

A flag and the dependency that it needs come from here together: when g++ uses a precompiled header, it does not list it
among the files that it read, so Bazel could not see that an undeclared one was used.

Targets are visible everywhere: tools/lint/layers.bzl is the one table of permitted dependencies. A target with fewer
users sets its own `visibility`.
"""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")
load("//tools/build_rules:precompiled.bzl", "STANDARD_HEADERS")
load("//tools/lint:layers.bzl", "LAYERS", "row_of")

def _planning():
    package = native.package_name()
    row = row_of(package)
    return row and LAYERS[row].planning and "testing" not in package.split("/")

def _with_flags(kwargs, standard_headers):
    if not kwargs.get("visibility"):
        kwargs["visibility"] = ["//visibility:public"]
    if not kwargs.get("srcs"):
        return kwargs
    copts = ["-O1"] if _planning() else []
    if standard_headers:
        copts = copts + select({
            "//framework/base:own_includes": [],
            "//conditions:default": ["-include", STANDARD_HEADERS],
        })
        kwargs["deps"] = kwargs.get("deps", []) + ["//framework/base:standard_headers"]
    kwargs["copts"] = copts + kwargs.get("copts", [])
    return kwargs

def cc_library(standard_headers = True, **kwargs):
    """A C++ library. Kernels say standard_headers = False: their instruction set is not the precompiled header's."""
    _cc_library(**_with_flags(kwargs, standard_headers))

def cc_binary(standard_headers = True, **kwargs):
    _cc_binary(**_with_flags(kwargs, standard_headers))

def cc_test(standard_headers = True, **kwargs):
    """A test. Its own files are compiled for a fast build (-O1), where g++ 12 warns falsely about std::variant."""
    kwargs["copts"] = ["-O1", "-Wno-maybe-uninitialized"] + kwargs.get("copts", [])
    _cc_test(**_with_flags(kwargs, standard_headers))

def weft_library(name, folder = "", **kwargs):
    """A library with the files NAME.h and NAME.cc, in a folder of the package if `folder` is given."""
    path = folder + "/" + name if folder else name
    cc_library(
        name = name,
        srcs = [path + ".cc"],
        hdrs = [path + ".h"],
        **kwargs
    )

def _is_library_source(path, ends):
    folders = path.split("/")[:-1]
    return path.endswith(ends) and not path.endswith("_test.cc") and "testing" not in folders

def weft_room(deps, name = None, **kwargs):
    """The library of a room, named after it: the sources that no target above it in the BUILD file contains.

    Folders without a BUILD file belong to the room; `testing` folders do not.
    """
    taken = {}
    for rule in native.existing_rules().values():
        for attribute in ["srcs", "hdrs", "textual_hdrs"]:
            for label in rule.get(attribute) or []:
                if label.startswith(":"):  # a file of this package
                    taken[label[1:]] = True
    sources = [f for f in native.glob(["**/*.cc", "**/*.h"]) if f not in taken]
    cc_library(
        name = name or native.package_name().split("/")[-1],
        srcs = [f for f in sources if _is_library_source(f, ".cc")],
        hdrs = [f for f in sources if _is_library_source(f, ".h")],
        deps = deps,
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

def fuzz_test(name, deps, srcs = None, **kwargs):
    """A test whose targets (framework/testing/fuzz.h) read damaged inputs: few here, many by tools/ci/fuzz."""
    cc_test(
        name = name,
        size = "small",
        srcs = srcs or [name + ".cc"],
        tags = ["fuzz"],
        deps = deps + ["//framework/testing:fuzz"],
        **kwargs
    )

def weft_tests(deps, each = {}):
    """A test for each file *_test.cc without a target of its own above; *_fuzz_test.cc are fuzz tests.

    Args:
      deps: libraries that every test of this package links.
      each: {name of a test: its own attributes}; its `deps` are added to `deps`.
    """
    sources = {}
    for source in native.glob(["**/*_test.cc"]):
        name = source.split("/")[-1][:-len(".cc")]
        if name in sources:
            fail("%s and %s have one name; need two" % (sources[name], source))
        sources[name] = source
    for name in each:
        if name not in sources or native.existing_rule(name):
            fail("`each` names %s; need a file %s.cc without a target of its own" % (name, name))
    for name, source in sources.items():
        if native.existing_rule(name):
            continue
        own = dict(each.get(name, {}))
        rule = fuzz_test if name.endswith("_fuzz_test") else weft_test
        rule(name = name, srcs = [source], deps = deps + own.pop("deps", []), **own)
