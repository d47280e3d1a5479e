"""A precompiled header, which saves a quarter of the time that g++ spends on a file."""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain")
load("@standard_headers//:version.bzl", "VERSION")

# The header that cc.bzl includes in every file, as a path in the output folder.
STANDARD_HEADERS = "framework/base/precompiled/%s/standard_headers.h" % VERSION

def _precompiled_header_impl(ctx):
    toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    header = ctx.actions.declare_file(ctx.attr.out)
    compiled = ctx.actions.declare_file(ctx.attr.out + ".gch")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = ctx.file.src.path,
        output_file = compiled.path,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ["-x", "c++-header"],
        use_pic = True,
    )
    action = "c++-compile"
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = action),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        inputs = depset([ctx.file.src], transitive = [toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "PrecompiledHeader",
        progress_message = "Compiling " + ctx.file.src.short_path,
    )
    return [DefaultInfo(files = depset([header, compiled]))]

precompiled_header = rule(
    doc = "Compiles `src` with the flags of the build to OUT.gch. OUT, beside it, is `src` for files with other flags.",
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = True, mandatory = True),
        "out": attr.string(
            mandatory = True,
            doc = "A path that no source has: g++ takes OUT.gch from the folder where it finds OUT.",
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
