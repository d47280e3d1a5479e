#!/usr/bin/env python3
"""Packages a target as a folder that works without this repository:  ./bazelw run //tools:package -- TARGET --out DIR

TARGET is a program (//models/moe:train) or a library (//:weft). A program's folder has bin/ and lib/ and needs only the
machine's C library. A library's folder has lib/, include/ and the files for CMake's find_package(weft) and pkg-config.
Both folders can be moved.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

VERSION = "0.1.0"
# The C library is not packaged: it must match the other machine's kernel and dynamic linker.
GLIBC = re.compile(r"^(ld-linux.*|lib(c|m|mvec|pthread|dl|rt|resolv|util|anl|nsl|BrokenLocale)|linux-vdso)\.so(\.\d+)?$")


class Failure(Exception):
    """Prints one line for the user and exits; status 2 for a wrong command line."""

    def __init__(self, message, status=1):
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Failure(f"{message}; usage: ./bazelw run //tools:package -- TARGET --out DIR", 2)


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
    if kind not in ("cc_binary", "cc_library"):
        raise Failure(f"{target} is a {kind}; a program (cc_binary) or a library (cc_library) can be packaged", 2)
    status = subprocess.run([*bazel, "build", target, "--aspects=//tools:package.bzl%package",
                             "--output_groups=package", "--show_result=0"], cwd=workspace).returncode
    if status:
        raise Failure(f"{target} does not build")
    root = pathlib.Path(run(*bazel, "info", "execution_root", cwd=workspace).strip())
    bin_dir = pathlib.Path(run(*bazel, "info", "bazel-bin", cwd=workspace).strip())
    package, name = label[2:].split(":")
    return json.loads((bin_dir / package / f"{name}.package.json").read_text()), name, root


def copy_libraries(binary, lib):
    """Copies the shared libraries that `binary` needs, except the C library, to `lib`, and lets each find the others."""
    for line in run("ldd", binary).splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if not match or GLIBC.match(match[1]):
            continue
        if match[2] == "not":
            raise Failure(f"{binary.name} needs {match[1]}, which is not on this machine")
        target = lib / match[1]
        if target.exists() and os.path.samefile(target, match[2]):
            continue
        shutil.copyfile(match[2], target)
        target.chmod(0o755)
        run("strip", "--strip-unneeded", target)
        run("patchelf", "--set-rpath", "$ORIGIN", target)


def package_program(what, name, root, out):
    binary = out / "bin" / name
    binary.parent.mkdir()
    shutil.copyfile(root / what["executable"], binary)
    binary.chmod(0o755)
    copy_libraries(binary, out / "lib")
    run("strip", binary)
    run("patchelf", "--set-rpath", "$ORIGIN/../lib", binary)
    for file in what["data"]:
        target = binary.with_name(name + ".runfiles") / "weft" / file["name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / file["path"], target)


def package_library(what, name, root, out):
    copy_headers(what, root, out / "include" / name)
    library = out / "lib" / f"lib{name}.so"
    flags = list(dict.fromkeys(what["flags"]))
    run("g++", "-shared", "-o", library, f"-Wl,-soname,{library.name}", "-Wl,-z,defs", "-Wl,-z,relro,-z,now", "-Wl,-O1",
        "-Wl,--gc-sections", "-Wl,--as-needed", "-Wl,--whole-archive", *what["archives"], "-Wl,--no-whole-archive", *flags,
        cwd=root)
    copy_libraries(library, out / "lib")
    run("strip", "--strip-unneeded", library)
    run("patchelf", "--set-rpath", "$ORIGIN", library)

    cmake = out / "lib" / "cmake" / name
    cmake.mkdir(parents=True)
    defines = ";".join(what["defines"])
    (cmake / f"{name}Config.cmake").write_text(f"""# find_package({name}) gives the target {name}::{name}.
if(NOT TARGET {name}::{name})
  find_package(Threads REQUIRED)
  get_filename_component(_{name}_prefix "${{CMAKE_CURRENT_LIST_DIR}}/../../.." ABSOLUTE)
  add_library({name}::{name} SHARED IMPORTED)
  set_target_properties({name}::{name} PROPERTIES
    IMPORTED_LOCATION "${{_{name}_prefix}}/lib/lib{name}.so"
    IMPORTED_SONAME "lib{name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${{_{name}_prefix}}/include/{name}"
    INTERFACE_COMPILE_DEFINITIONS "{defines}"
    INTERFACE_COMPILE_FEATURES cxx_std_20
    INTERFACE_LINK_OPTIONS "-Wl,-rpath-link,${{_{name}_prefix}}/lib"
    INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
""")
    (cmake / f"{name}ConfigVersion.cmake").write_text(f"""set(PACKAGE_VERSION {VERSION})
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
else()
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
  if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
    set(PACKAGE_VERSION_EXACT TRUE)
  endif()
endif()
""")
    pkgconfig = out / "lib" / "pkgconfig"
    pkgconfig.mkdir()
    (pkgconfig / f"{name}.pc").write_text(f"""prefix=${{pcfiledir}}/../..
Name: {name}
Description: Weft, a deep-learning framework
Version: {VERSION}
Cflags: -I${{prefix}}/include/{name} {" ".join("-D" + d for d in what["defines"])}
Libs: -L${{prefix}}/lib -l{name} -Wl,-rpath,${{prefix}}/lib -Wl,-rpath-link,${{prefix}}/lib
""")


def copy_headers(what, root, include):
    """Copies the public headers, and what they include from this repository, under their include paths."""
    folders = what["quote_includes"]
    lines = "".join(f'#include "{root / h}"\n' for h in what["headers"])
    command = ["g++", "-std=c++20", "-M", "-x", "c++", "-"] + [f for d in folders for f in ("-iquote", d)]
    done = subprocess.run(command, cwd=root, input=lines, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise Failure("the public headers do not compile alone:\n" + done.stderr.strip())
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
        shutil.copyfile(root / path, target)
    if foreign:
        print(f"package: warning: users of the headers also need the headers of {', '.join(sorted(foreign))}")


def main():
    parser = Parser(prog="package", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET", help="a cc_binary or cc_library: //models/moe:train, //:weft")
    parser.add_argument("--out", required=True, metavar="DIR", help="the folder to write; must not exist, or be empty")
    parser.add_argument("--force", action="store_true", help="replace DIR if it contains an earlier package")
    args = parser.parse_args()
    workspace = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    if not workspace:
        raise Failure("start it with ./bazelw run //tools:package", 2)
    if args.target.startswith("-") or not re.match(r"^(@|//|:)", args.target):
        raise Failure(f"TARGET is a label such as //models/moe:train; got {args.target}", 2)
    out = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."), args.out).resolve()
    marker = ".weft_package"
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        if not (args.force and (out / marker).exists()):
            raise Failure(f"{out} exists and is not empty" + (" and holds no earlier package" if args.force else "; --force replaces an earlier package"), 2)
    if not out.parent.is_dir():
        raise Failure(f"the folder {out.parent} does not exist", 2)

    what, name, root = build(bazel_command(pathlib.Path(workspace)), workspace, args.target)
    # Write to a temporary folder, and rename it when complete.
    staging = out.with_name(out.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    try:
        (staging / "lib").mkdir(parents=True)
        (staging / marker).write_text(args.target + "\n")
        make = package_program if what["kind"] == "program" else package_library
        make(what, name, root, staging)
        if out.exists():
            shutil.rmtree(out)
        staging.rename(out)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file() and not f.is_symlink())
    print(f"{out}: {size / 1e6:.1f} MB")
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
