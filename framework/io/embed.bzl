"""embed_file: a file's bytes inside the program, so that it works wherever it is copied."""

load("@rules_cc//cc:defs.bzl", "cc_library")

def embed_file(name, src, symbol, **kwargs):
    """A cc_library that defines `extern "C" const unsigned char SYMBOL[], SYMBOL_end[]` (read-only data, 64-byte aligned).

    Args:
      name: the library.
      src: the file.
      symbol: the C name of its first byte.
      **kwargs: for the library.
    """
    native.genrule(
        name = name + "_object",
        srcs = [src],
        outs = [name + "_embedded.o"],
        cmd = "printf '.section .rodata\\n.balign 64\\n.global {s}\\n.global {s}_end\\n{s}:\\n.incbin \"%s\"\\n{s}_end:\\n.byte 0\\n.section .note.GNU-stack,\"\",@progbits\\n' $(location {src}) | as -o $@ -".format(s = symbol, src = src),
        visibility = ["//visibility:private"],
    )
    cc_library(name = name, srcs = [name + "_embedded.o"], **kwargs)
