"""model_family: the library of a model family, and its programs //models/NAME:train, :generate and :score."""

load("//tools/build_rules:cc.bzl", "cc_binary", "weft_room")

def _model_programs(family):
    """Three binaries whose main() hands weft::FAMILY::family(), declared in models/FAMILY/config.h, to models/train."""
    for program in ["train", "generate", "score"]:
        main = "\\n".join([
            '#include "models/%s/config.h"' % family,
            '#include "models/train/%s.h"' % ("trainer" if program == "train" else "generate"),
            "int main(int argc, char** argv) { return weft::train::%s_main(argc, argv, %s); }" %
            (program, "weft::%s::family()" % family),
            "",
        ])
        native.genrule(
            name = program + "_main",
            outs = [program + "_main.cc"],
            cmd = "printf '%s' > $@" % main,
        )
        cc_binary(
            name = program,
            srcs = [program + "_main.cc"],
            visibility = ["//visibility:public"],
            deps = [":" + family, "//models/train:" + program],
        )

    native.sh_test(
        name = "programs_test",
        size = "medium",
        srcs = ["//models/train:programs_test.sh"],
        args = ["$(rootpath :train)", "$(rootpath :generate)", "$(rootpath :score)", family + "_tiny"],
        data = [":train", ":generate", ":score"],
    )

def model_family(deps):
    """The package of a family: its room, which uses `deps`, its programs and their test on configuration NAME_tiny.

    The sources declare and define weft::NAME::family().
    """
    _model_programs(native.package_name().split("/")[-1])
    weft_room(deps = deps)
