"""The programs of a model family: //models/NAME:train, :generate and :score."""

load("//tools/build_rules:cc.bzl", "cc_binary")

def model_programs(name, family, header, deps, test_config):
    """Three binaries whose main() hands `family` (a `const weft::nn::ModelFamily&` expression declared in `header`)
    to the shared programs."""
    for program in ["train", "generate", "score"]:
        native.genrule(
            name = program + "_main",
            outs = [program + "_main.cc"],
            cmd = ("printf '#include \"%s\"\\n#include \"models/train/%s.h\"\\n" % (header, "trainer" if program == "train" else "generate") +
                   "int main(int argc, char** argv) { return weft::train::%s_main(argc, argv, %s); }\\n' > $@" % (program, family)),
        )
        cc_binary(
            name = program,
            srcs = [program + "_main.cc"],
            visibility = ["//visibility:public"],
            deps = deps + ["//models/train:" + program],
        )

    native.sh_test(
        name = "programs_test",
        size = "medium",
        srcs = ["//models/train:programs_test.sh"],
        args = ["$(rootpath :train)", "$(rootpath :generate)", "$(rootpath :score)", test_config],
        data = [":train", ":generate", ":score"],
    )
