"""./bazelw build --config=tidy //...: clang-tidy with the checks of /.clang-tidy, one cached action per source file.

A finding fails the action and is printed. Only this needs the Debian package clang-tidy-16 (version 14 does not know
std::source_location).
"""

def _flags(context):
    flags = ["-D" + d for d in context.defines.to_list() + context.local_defines.to_list()]
    for option, folders in [
        ("-iquote", context.quote_includes),
        ("-I", context.includes),
        ("-isystem", context.system_includes),
    ]:
        for folder in folders.to_list():
            flags += [option, folder]
    return flags

def _clang_tidy_impl(target, ctx):
    if CcInfo not in target or ctx.label.workspace_name or not ctx.rule.kind.startswith("cc_"):
        return []
    context = target[CcInfo].compilation_context
    reports = []
    for source in ctx.rule.files.srcs:
        if source.extension != "cc" or not source.is_source:
            continue
        report = ctx.actions.declare_file("%s.%s.tidy.txt" % (source.basename, ctx.label.name))
        ctx.actions.run_shell(
            command = """
report=$1; shift
command -v clang-tidy-16 >/dev/null || { echo "clang-tidy-16 is missing: apt-get install clang-tidy-16" >&2; exit 1; }
clang-tidy-16 --quiet --config-file=.clang-tidy --warnings-as-errors='*' "$@" >"$report" 2>"$report.err" ||
  { sed "s|$PWD/||g" "$report"; grep 'error:' "$report.err"; exit 1; }""",
            arguments = [report.path, source.path, "--", "-std=c++20", "-march=x86-64-v2"] + _flags(context) +
                        ctx.rule.attr.copts,
            inputs = depset([source] + ctx.files._config, transitive = [context.headers]),
            outputs = [report],
            mnemonic = "ClangTidy",
            progress_message = "Checking " + source.short_path,
            use_default_shell_env = True,
        )
        reports.append(report)
    return [OutputGroupInfo(tidy = depset(reports))]

clang_tidy = aspect(
    implementation = _clang_tidy_impl,
    attrs = {"_config": attr.label(default = "//:.clang-tidy", allow_single_file = True)},
)
