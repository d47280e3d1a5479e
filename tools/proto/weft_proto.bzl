"""weft_proto_library: makes a cc_library from .proto files, with the system's protoc.

    weft_proto_library(name = "graph_proto", srcs = ["graph.proto"], deps = [":types_proto"])

Every .proto has `option optimize_for = LITE_RUNTIME`: programs link libprotobuf-lite only.
A .proto imports others by their path from the workspace root, and google/protobuf/*.proto from /usr/include.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")

def _protos(label):
    return (label if ":" in label else label + ":" + label.split("/")[-1]) + "__protos"

def weft_proto_library(name, srcs, deps = [], visibility = None, **kwargs):
    inputs = srcs + [_protos(d) for d in deps]
    stems = [s[:-len(".proto")] for s in srcs]
    native.filegroup(name = name + "__protos", srcs = inputs, visibility = visibility)
    native.genrule(
        name = name + "__gen",
        srcs = inputs,
        outs = [s + ext for s in stems for ext in [".pb.h", ".pb.cc"]],
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR)" + "".join([" $(location %s)" % s for s in srcs]),
        message = "Generating C++ for",
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [s + ".pb.cc" for s in stems],
        hdrs = [s + ".pb.h" for s in stems],
        deps = deps + ["//third_party/protobuf"],
        visibility = visibility,
        **kwargs
    )
