"""version_of(name, file): the repository @NAME, whose version.bzl defines VERSION, a number from the text of `file`."""

def _version_of(rctx):
    rctx.file("BUILD")
    rctx.file("version.bzl", "VERSION = \"%d\"\n" % (hash(rctx.read(rctx.attr.file)) % 4294967296))

version_of = repository_rule(
    implementation = _version_of,
    attrs = {"file": attr.label(allow_single_file = True, mandatory = True)},
)
