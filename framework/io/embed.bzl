"""Files inside the program, so that it works wherever it is copied: the bytes of one file, or texts by name."""

load("//tools/build_rules:cc.bzl", "cc_library")

def embed_file(name, src, symbol, **kwargs):
    """A cc_library that defines `extern "C" const unsigned char SYMBOL[], SYMBOL_end[]` (read-only, 64-byte aligned).

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
        cmd = ("printf '.section .rodata\\n.balign 64\\n.global {s}\\n.global {s}_end\\n{s}:\\n.incbin \"%s\"\\n" +
               "{s}_end:\\n.byte 0\\n.section .note.GNU-stack,\"\",@progbits\\n' " +
               "$(location {src}) | as -o $@ -").format(
            s = symbol,
            src = src,
        ),
        visibility = ["//visibility:private"],
    )
    cc_library(name = name, srcs = [name + "_embedded.o"], **kwargs)

def embed_texts(name, srcs):
    """A library with NAME.h: `std::string_view weft::NAME(std::string_view file)`, the text of one of the files.

    Args:
      name: the library.
      srcs: labels of files. `file` is X for X.inc and x_css for x.css.
    """
    symbols = {}
    for src in srcs:
        file = src.split(":")[-1].split("/")[-1]
        file = file[:-len(".inc")] if file.endswith(".inc") else file.replace(".", "_")
        symbols[file] = "weft_text_%s_%s" % (name, file)
        embed_file(
            name = "%s_%s" % (name, file),
            src = src,
            symbol = symbols[file],
            visibility = ["//visibility:private"],
        )
    declaration = "std::string_view %s(std::string_view file)" % name
    header = ["#pragma once", "#include <string_view>", "namespace weft {", declaration + ";", "}"]
    source = ["#include \"%s/%s.h\"" % (native.package_name(), name), "#include \"framework/base/error.h\""]
    source += ["extern \"C\" const char %s[], %s_end[];" % (s, s) for s in symbols.values()]
    source += ["namespace weft {", declaration + " {"]
    source += [
        "  if (file == \"%s\") return {%s, static_cast<size_t>(%s_end - %s)};" % (file, s, s, s)
        for file, s in symbols.items()
    ]
    source += ["  WEFT_BUG_IF(true, \"%s: no text \", std::string(file));" % name, "}", "}"]
    for suffix, lines in {".h": header, ".cc": source}.items():
        native.genrule(
            name = name + suffix.replace(".", "_"),
            outs = [name + suffix],
            cmd = "cat >$@ <<'END'\n%s\nEND" % "\n".join(lines),
            visibility = ["//visibility:private"],
        )
    cc_library(
        name = name,
        srcs = [name + ".cc"],
        hdrs = [name + ".h"],
        deps = ["//framework/base"] + [":%s_%s" % (name, file) for file in symbols],
    )
