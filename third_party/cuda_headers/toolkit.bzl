"""@cuda_toolkit//:headers: the headers of $CUDA_HOME or /usr/local/cuda; an empty library where there is no toolkit."""

_FOUND = """
package(default_visibility = ["//visibility:public"])
cc_library(
    name = "headers",
    hdrs = glob(["include/*.h", "include/crt/*"]),
    includes = ["include"],
    defines = ["WEFT_CUDA_HEADERS"],
)
"""

_NONE = """
package(default_visibility = ["//visibility:public"])
cc_library(name = "headers")
"""

def _cuda_toolkit(rctx):
    include = rctx.path(rctx.os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include")
    found = include.get_child("cuda.h").exists
    if found:
        rctx.symlink(include, "include")
    rctx.file("BUILD", _FOUND if found else _NONE)

cuda_toolkit = repository_rule(
    implementation = _cuda_toolkit,
    environ = ["CUDA_HOME"],
    local = True,
)
