#!/usr/bin/env python3
"""Packages Weft, or one target, as a folder that works without this repository:

    ./bazelw run //tools:package -- --out DIR             the library with all its components (//tools:components)
    ./bazelw run //tools:package -- TARGET --out DIR      a program (//models/moe:train) or one library (//:weft)
    ./bazelw run //tools:package -- --archive FOLDER      a release archive, FOLDER/weft-V-linux-x86_64.tar.xz

A library's folder has lib/, include/ and the files for CMake's find_package(weft) and pkg-config. It uses the system's
C and C++ libraries. A program's folder has bin/ and lib/ and needs only the machine's C library. Both can be moved.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

# The version of this tree, written here only: packages and archives carry it, and a test compares CHANGELOG.md.
VERSION = "0.3.0"
# The newest glibc that a library may need: Ubuntu 22.04, RHEL 9 and Debian 12 have it.
GLIBC_LIMIT = (2, 34)
# The C library is not packaged: it must match the other machine's kernel and dynamic linker.
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|BrokenLocale)|linux-vdso)"
                   r"\.so(\.\d+)?$")
# A program's package contains these libraries. In a library's package, they would replace the libraries of the user's
# program, and they need a newer glibc.
RUNTIME = re.compile(r"^lib(stdc\+\+|gcc_s)\.so(\.\d+)?$")


# The headers of these folders are also found one folder up, where releases 0.1 and 0.2 had them. Release 0.4 drops the
# old paths.
FORWARDED = {
    "compiler/cost/machine", "compiler/exec/plan", "compiler/exec/record", "compiler/exec/run",
    "compiler/passes/fusion", "compiler/passes/patterns", "distributed/control/service", "framework/cuda/libraries",
    "framework/cuda/transfer", "framework/dispatch/device", "framework/dispatch/rank", "framework/dispatch/state",
    "framework/io/fields", "models/data/readers", "models/nn/layers", "models/nn/transformer",
    "models/optim/optimizers", "ops/attention/masks", "ops/attention/mods", "ops/composite/images",
    "ops/composite/layers", "ops/composite/loss", "ops/composite/math", "ops/composite/random",
    "ops/core/collectives", "ops/core/functions", "ops/core/indexing", "ops/core/products", "ops/core/reductions",
    "ops/kernels/attention", "ops/kernels/products", "ops/kernels/sums",
}
# Each header of a package includes this one first. A missing file is the one error that ends a compilation at once.
COMPILER_CHECK = "weft_compiler.h"
COMPILER_CHECK_TEXT = """\
// Ends the compilation with one error if the compiler or its mode cannot compile Weft's headers.
#pragma once
#if defined(__clang__)
#if __clang_major__ < 16
#include "Weft needs clang 16 or newer, or g++ 12 or newer"
#endif
#elif defined(__GNUC__) && __GNUC__ < 12
#include "Weft needs g++ 12 or newer, or clang 16 or newer"
#endif
#if __cplusplus < 202002L
#include "Weft needs C++20: add -std=c++20"
#endif
"""
# The file of a package that names its other files, below its target.
MARKER = ".weft_package"


class Failure(Exception):
    """Prints one line for the user and exits; status 2 for a wrong command line."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(f"{message}; usage: ./bazelw run //tools:package -- [TARGET] --out DIR, or --archive "
                      "FOLDER", 2)


def run(*command, cwd=None):
    done = subprocess.run([str(c) for c in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure(f"{pathlib.Path(command[0]).name} failed:\n{done.stderr.strip()}")
    return done.stdout


def bazel_command(workspace):
    """The bazel whose server started this program, even if it has its own --output_base."""
    base = os.getcwd().split("/execroot/")[0]
    return [workspace / "bazelw"] + ([] if "/_bazel_" in base else [f"--output_base={base}"])


def build(bazel, workspace, target):
    """Builds `target`. Returns its description by //tools:package.bzl, and the folder that its paths start from."""
    found = subprocess.run([*bazel, "query", "--output=label_kind", target], cwd=workspace, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    rows = found.stdout.split("\n")[:-1]
    if found.returncode or len(rows) != 1:
        why = re.findall(r"^ERROR: (.*)$", found.stderr, re.M)
        raise Failure(f"{target} names no single target" + (f": {why[-1]}" if why else ""), 2)
    kind, _, label = rows[0].split(" ")
    if kind not in ("cc_binary", "cc_library", "package_components"):
        raise Failure(f"{target} is a {kind}; a program (cc_binary) or a library (cc_library) can be packaged", 2)
    flags = [] if kind == "package_components" else ["--aspects=//tools:package.bzl%package", "--output_groups=package"]
    if subprocess.run([*bazel, "build", target, *flags, "--show_result=0"], cwd=workspace).returncode:
        raise Failure(f"{target} does not build")
    root = pathlib.Path(run(*bazel, "info", "execution_root", cwd=workspace).strip())
    bin_dir = pathlib.Path(run(*bazel, "info", "bazel-bin", cwd=workspace).strip())
    package, name = label[2:].split(":")
    return json.loads((bin_dir / package / f"{name}.package.json").read_text()), name, root


def copy_libraries(binary, lib, system):
    """Copies the shared libraries that `binary` needs, except matches of `system`, to `lib`, and lets each
    find the others."""
    for line in run("ldd", binary).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if not match or any(s.match(match[1]) for s in system):
            continue
        if match[2] == "not":
            raise Failure(f"{binary.name} needs {match[1]}, which is not on this machine")
        target = lib / match[1]
        if target.exists():
            continue
        shutil.copyfile(match[2], target)
        target.chmod(0o755)
        run("strip", "--strip-unneeded", target)
        run("patchelf", "--set-rpath", "$ORIGIN", target)


def needs(out, limit=None):
    """The newest versions that the files of a package need, as in "GLIBC_2.34 and GLIBCXX_3.4.30". A symbol of a newer
    glibc than `limit` is an error."""
    newest = {}
    for file in sorted([*(out / "lib").glob("*.so*"), *(out / "bin").glob("*")]):
        if not file.is_file():
            continue
        for name, digits, symbol in re.findall(r"\((GLIBC|GLIBCXX)_([\d.]+)\) +(\S+)", run("objdump", "-T", file)):
            version = tuple(map(int, digits.split(".")))
            if limit and name == "GLIBC" and version > limit:
                raise Failure(f"lib/{file.name} needs {symbol} of GLIBC_{digits}; systems with glibc "
                              f"{limit[0]}.{limit[1]} lack it: call something else there")
            newest[name] = max(version, newest.get(name, ()))
    return " and ".join(f"{name}_{'.'.join(map(str, newest[name]))}" for name in sorted(newest))


def package_program(what, name, root, out):
    binary = out / "bin" / name
    binary.parent.mkdir()
    (out / "lib").mkdir()
    shutil.copyfile(root / what["executable"], binary)
    binary.chmod(0o755)
    copy_libraries(binary, out / "lib", [GLIBC])
    run("strip", binary)
    run("patchelf", "--set-rpath", "$ORIGIN/../lib", binary)
    for file in what["data"]:
        target = binary.with_name(name + ".runfiles") / "weft" / file["name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file["path"], target)


def components_of(what, name):
    """The components of a library's description, each with `uses`, the components above it that it needs. An archive is
    linked into the first component that needs it, so that no function and no variable is in a program twice."""
    components, holder = [], {}
    for c in what.get("components") or [{"name": name, "targets": [what]}]:
        merged = {key: list(dict.fromkeys(x for t in c["targets"] for x in t[key]))
                  for key in ("archives", "flags", "headers", "defines", "quote_includes")}
        for target in c["targets"]:
            if not target["headers"]:
                raise Failure(f"a library of component {c['name']} has no headers, so no program could use it; name a "
                              "cc_library that has hdrs", 2)
        uses = {holder[a] for a in merged["archives"] if a in holder}
        merged["archives"] = [a for a in merged["archives"] if a not in holder]
        holder.update((a, c["name"]) for a in merged["archives"])
        merged.update(name=c["name"], uses=[x["name"] for x in components if x["name"] in uses],
                      library=name if c["name"] == name else f"{name}_{c['name']}")
        components.append(merged)
    return components


def package_library(what, name, root, out):
    lib, include = out / "lib", out / "include" / name
    components = components_of(what, name)
    file_of = {c["name"]: f"lib{c['library']}.so" for c in components}
    for path in ("cmake/" + name, "pkgconfig"):
        (lib / path).mkdir(parents=True)
    targets = ""
    for c in components:
        copy_headers(c, root, include)
        library = lib / file_of[c["name"]]
        run("g++", "-shared", "-o", library, f"-Wl,-soname,{library.name}", "-Wl,-z,defs", "-Wl,-z,relro,-z,now",
            "-Wl,-O1", "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,-rpath,$ORIGIN", "-Wl,--whole-archive",
            *c["archives"], "-Wl,--no-whole-archive", *(lib / file_of[u] for u in c["uses"]), *c["flags"], cwd=root)
        copy_libraries(library, lib, [GLIBC, RUNTIME])
        run("strip", "--strip-unneeded", library)
        targets += f"""  add_library({name}::{c["name"]} SHARED IMPORTED)
  set_target_properties({name}::{c["name"]} PROPERTIES
    IMPORTED_LOCATION "${{_{name}_prefix}}/lib/{library.name}"
    IMPORTED_SONAME "{library.name}"
    INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_prefix}}/include/{name}"
    INTERFACE_COMPILE_DEFINITIONS "{";".join(c["defines"])}"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${{_{name}_prefix}}/lib"
    INTERFACE_LINK_LIBRARIES "{";".join([f"{name}::{u}" for u in c["uses"]] + ["Threads::Threads"])}")
"""
        requires = ", ".join(x["library"] for x in components if x["name"] in c["uses"])
        (lib / "pkgconfig" / f"{c['library']}.pc").write_text(f"""prefix=${{pcfiledir}}/../..
Name: {c["library"]}
Description: Weft, a deep-learning framework
Version: {VERSION}
Requires: {requires}
Cflags: -I${{prefix}}/include/{name} {" ".join("-D" + d for d in c["defines"])}
Libs: -L${{prefix}}/lib -l{c["library"]} -Wl,-rpath,${{prefix}}/lib -Wl,-rpath-link,${{prefix}}/lib
""")

    names = [c["name"] for c in components]
    listed = ", ".join(f"{name}::{n}" for n in names)
    (lib / "cmake" / name / f"{name}Config.cmake").write_text(f"""# find_package({name}) gives the targets {listed}.
if(NOT TARGET {name}::{name})
  include(CMakeFindDependencyMacro)
  find_dependency(Threads)
  get_filename_component(_{name}_prefix "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
{targets}endif()
foreach(component IN LISTS {name}_FIND_COMPONENTS)
  if(TARGET {name}::${{component}})
    set({name}_${{component}}_FOUND TRUE)
  elseif({name}_FIND_REQUIRED_${{component}})
    set({name}_FOUND FALSE)
    set({name}_NOT_FOUND_MESSAGE "this package of {name} has no component ${{component}}; it has: {" ".join(names)}")
  endif()
endforeach()
""")
    (lib / "cmake" / name / f"{name}ConfigVersion.cmake").write_text(f"""set(PACKAGE_VERSION {VERSION})
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
""")
    for path in what.get("template", []):
        target = out / "share" / name / "template" / pathlib.Path(path).name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target)


def copy_headers(what, root, include):
    """Copies the public headers, and the headers of this repository that they include, under their include paths. Each
    header checks the compiler first."""
    folders = what["quote_includes"]
    lines = "".join(f'#include "{root / h}"\n' for h in what["headers"])
    command = ["g++", "-std=c++20", "-M", "-x", "c++", "-"] + [f for d in folders for f in ("-iquote", d)]
    done = subprocess.run(command, cwd=root, input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure("the public headers do not compile alone:\n" + done.stderr.strip())
    include.mkdir(parents=True, exist_ok=True)
    (include / COMPILER_CHECK).write_text(COMPILER_CHECK_TEXT)
    foreign = set()
    for path in done.stdout.replace("\\\n", " ").split()[1:]:
        match = re.match(r"/usr/include/(absl|eigen3|google)", path)
        if match:
            foreign.add(match[1])
        if path.startswith("/usr/"):
            continue
        relative = os.path.relpath(path, root) if os.path.isabs(path) else os.path.normpath(path)
        match = re.match(r"bazel-out/[^/]+/bin/(.*)", relative)
        target = include / (match[1] if match else relative)
        target.parent.mkdir(parents=True, exist_ok=True)
        check = f'#include "{COMPILER_CHECK}"\n' if target.suffix == ".h" else ""
        target.write_bytes(check.encode() + (root / path).read_bytes())
        folder = target.parent.relative_to(include)
        if str(folder) in FORWARDED:
            if (root / folder.parent / target.name).exists():
                raise Failure(f"{folder.parent / target.name} exists, and so does {folder / target.name}; rename one")
            (include / folder.parent / target.name).write_text(f'#include "{folder / target.name}"\n')
    if foreign:
        print(f"package: warning: users of the headers also need the headers of {', '.join(sorted(foreign))}")


def files_of(folder):
    return sorted(str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_symlink() or not f.is_dir())


def check_replaceable(out, force):
    """Throws unless `out` is missing, is empty, or has the files of an earlier package only and --force is given."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    marker = out / MARKER
    if not force or not marker.is_file():
        raise Failure(f"{out} exists and is not empty" + (" and holds no earlier package" if force else
                                                          "; --force replaces an earlier package"), 2)
    written = {MARKER, *marker.read_text().splitlines()[1:]}
    others = [f for f in files_of(out) if f not in written]
    if others:
        raise Failure(f"{out} has {len(others)} files that this version of package did not write, such as {others[0]}; "
                      "move them, or use another DIR", 2)


def replace(out, target, force, fill):
    """Lets fill(folder) write a package of `target`, and makes it the folder `out` when it is complete."""
    with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work:
        staging = pathlib.Path(work) / "package"
        staging.mkdir()
        result = fill(staging)
        (staging / MARKER).write_text("\n".join([target, *files_of(staging)]) + "\n")
        check_replaceable(out, force)
        if out.exists():
            shutil.rmtree(out)
        staging.rename(out)
    return result


def archive_name(name):
    """The file name of a release archive, without its suffix: also the one folder at the top of the archive."""
    return f"{name}-{VERSION}-linux-{platform.machine()}"


def write_archive(folder, path):
    """Writes the files of `folder` as the .tar.xz file `path`. Equal files give equal bytes."""
    def plain(entry):
        if entry.name.endswith("/" + MARKER):
            return None
        entry.uid = entry.gid = entry.mtime = 0
        entry.uname = entry.gname = "root"
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as work:
        written = pathlib.Path(work) / path.name
        with tarfile.open(written, "w:xz", format=tarfile.PAX_FORMAT) as tar:
            tar.add(folder, arcname=path.name[:-len(".tar.xz")], filter=plain)
        written.rename(path)


def main():
    parser = Parser(prog="package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET", nargs="?", default="//tools:components",
                        help="a cc_binary or cc_library: //models/moe:train, //:weft; without it the library with all "
                             "its components")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--out", metavar="DIR", help="the folder to write; must not exist, or be empty")
    place.add_argument("--archive", metavar="FOLDER",
                       help=f"write FOLDER/{archive_name('weft')}.tar.xz, or the same with the name of TARGET")
    parser.add_argument("--force", action="store_true", help="replace DIR if it contains an earlier package and no "
                                                             "other files, or an earlier archive")
    args = parser.parse_args()
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not workspace:
        raise Failure("start it with ./bazelw run //tools:package", 2)
    if args.target.startswith("-") or not re.match(r"^(@|//|:)", args.target):
        raise Failure(f"TARGET is a label such as //models/moe:train; got {args.target}", 2)
    shell = os.environ.get("BUILD_WORKING_DIRECTORY", ".")
    if args.archive is not None:
        name = "weft" if args.target == "//tools:components" else re.split("[/:]", args.target)[-1]
        out = pathlib.Path(shell, args.archive).resolve() / (archive_name(name) + ".tar.xz")
        if out.exists() and not args.force:
            raise Failure(f"{out} exists; --force replaces it", 2)
    else:
        out = pathlib.Path(shell, args.out).resolve()
        check_replaceable(out, args.force)
    if not out.parent.is_dir():
        raise Failure(f"the folder {out.parent} does not exist", 2)

    what, name, root = build(bazel_command(pathlib.Path(workspace)), workspace, args.target)

    def fill(folder):
        shutil.copyfile(pathlib.Path(workspace) / "LICENSE", folder / "LICENSE")
        if what["kind"] == "program":
            package_program(what, name, root, folder)
            return needs(folder)
        package_library(what, "weft" if "components" in what else name, root, folder)
        return needs(folder, GLIBC_LIMIT)

    if args.archive is not None:
        with tempfile.TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as work:
            folder = pathlib.Path(work) / "package"
            folder.mkdir()
            versions = fill(folder)
            write_archive(folder, out)
        print(f"{out}: {out.stat().st_size / 1e6:.1f} MB; needs {versions}")
        return
    versions = replace(out, args.target, args.force, fill)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"{out}: {size / 1e6:.1f} MB; needs {versions}")
    if what["kind"] == "program":
        print(f"run it with {out}/bin/{name}")
    else:
        print(f"to use it: cmake -DCMAKE_PREFIX_PATH={out}, or PKG_CONFIG_PATH={out}/lib/pkgconfig and -std=c++20")


if __name__ == "__main__":
    try:
        main()
    except Failure as failure:
        print(f"package: {failure}", file=sys.stderr)
        sys.exit(failure.status)
    except KeyboardInterrupt:
        sys.exit(130)
