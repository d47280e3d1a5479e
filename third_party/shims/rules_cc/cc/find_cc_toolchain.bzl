load("@bazel_tools//tools/cpp:toolchain_utils.bzl", _find = "find_cpp_toolchain")

find_cc_toolchain = _find
