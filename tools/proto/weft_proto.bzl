"""weft_proto_library: makes a cc_library from .proto files, with the system's protoc.

    weft_proto_library(name = "graph_proto", srcs = ["graph.proto"], deps = [":types_proto"])

Every .proto has `option optimize_for = LITE_RUNTIME`: programs link libprotobuf-lite only.
With `grpc = True` the services in the .proto files get their classes, in NAME.grpc.pb.h.
A .proto imports others by their path from the workspace root, and google/protobuf/*.proto from /usr/include.
"""

load("//tools/build_rules:cc.bzl", "cc_library")

def _protos(label):
    return (label if ":" in label else label + ":" + label.split("/")[-1]) + "__protos"

def weft_proto_library(name, srcs, deps = [], grpc = False, visibility = ["//visibility:public"], **kwargs):
    inputs = srcs + [_protos(d) for d in deps]
    stems = [s[:-len(".proto")] for s in srcs]
    endings = [".pb"] + ([".grpc.pb"] if grpc else [])
    flags = " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin" if grpc else ""
    native.filegroup(name = name + "__protos", srcs = inputs, visibility = visibility)
    native.genrule(
        name = name + "__gen",
        srcs = inputs,
        outs = [s + ext for s in stems for e in endings for ext in [e + ".h", e + ".cc"]],
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR)" + flags + "".join([" $(location %s)" % s for s in srcs]),
        message = "Generating C++ for",
        visibility = ["//visibility:private"],
    )
    cc_library(
        name = name,
        srcs = [s + e + ".cc" for s in stems for e in endings],
        hdrs = [s + e + ".h" for s in stems for e in endings],
        deps = deps + ["//third_party/protobuf"] + (["//third_party/grpc"] if grpc else []),
        visibility = visibility,
        **kwargs
    )
