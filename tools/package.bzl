"""What //tools:package packages: an aspect writes NAME.package.json, which lists what a target consists of.

A program consists of its executable and its data files. A library consists of all archives and objects that it depends
on, the link flags of system libraries, and its headers. The rule package_components does the same for a library of
several components.
"""

_Description = provider(fields = ["description", "files"])

def _package_impl(target, ctx):
    if ctx.rule.kind == "cc_binary":
        info = target[DefaultInfo]
        executable = info.files_to_run.executable
        data = [f for f in info.default_runfiles.files.to_list() if f != executable and ".so" not in f.basename]
        description = struct(
            kind = "program",
            executable = executable.path,
            data = [struct(path = f.path, name = f.short_path) for f in data],
        )
        files = depset([executable] + data)
    elif ctx.rule.kind == "cc_library":
        archives = []
        flags = []
        for linker_input in target[CcInfo].linking_context.linker_inputs.to_list():
            flags += linker_input.user_link_flags
            for library in linker_input.libraries:
                archive = library.pic_static_library or library.static_library
                if archive:
                    archives.append(archive)
        context = target[CcInfo].compilation_context
        description = struct(
            kind = "library",
            archives = [f.path for f in archives],
            flags = flags,
            headers = [f.path for f in ctx.rule.files.hdrs],
            defines = context.defines.to_list(),
            quote_includes = context.quote_includes.to_list(),
        )
        files = depset(archives, transitive = [context.headers])
    else:
        fail("//tools:package takes a cc_binary or a cc_library; %s is a %s" % (ctx.label, ctx.rule.kind))
    out = ctx.actions.declare_file(ctx.label.name + ".package.json")
    ctx.actions.write(out, description.to_json())
    return [
        OutputGroupInfo(package = depset([out], transitive = [files])),
        _Description(description = description, files = files),
    ]

package = aspect(implementation = _package_impl)

def _components_impl(ctx):
    components = {}
    for target, name in ctx.attr.components.items():
        components.setdefault(name, []).append(target[_Description].description)
    out = ctx.actions.declare_file(ctx.label.name + ".package.json")
    ctx.actions.write(out, struct(
        kind = "library",
        components = [struct(name = name, targets = targets) for name, targets in components.items()],
        template = [f.path for f in ctx.files.template],
    ).to_json())
    files = depset([out] + ctx.files.template, transitive = [t[_Description].files for t in ctx.attr.components])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

package_components = rule(
    doc = "NAME.package.json of the libraries `components` (target: its component) and of the files of `template`. A " +
          "component may use those that are named before it.",
    implementation = _components_impl,
    attrs = {
        "components": attr.label_keyed_string_dict(aspects = [package]),
        "template": attr.label_list(allow_files = True),
    },
)
