#!/usr/bin/env python3
"""The package of //tools:components: dependencies of its libraries, its headers, and CMake projects that use it."""
import array
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path[:0] = ["tools", "models/testing/pytorch"]
import cases
import package

ROOT = pathlib.Path.cwd()
CLANG = shutil.which("clang++-16")
OLD_CLANG = shutil.which("clang++-14")


def in_runfiles(value):
    """The description with the paths that its files have in this test."""
    if isinstance(value, dict):
        return {k: in_runfiles(v) for k, v in value.items()}
    if isinstance(value, list):
        return [in_runfiles(v) for v in value]
    return re.sub(r"^bazel-out/[^/]+/bin(/|$)", "", value) or "."


def first_row(path):
    """The tokens of the first text of an expected.safetensors, and the likeliest token after them by transformers."""
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])

    def values(name, kind):
        first, end = header[name]["data_offsets"]
        return array.array(kind, data[begin + first:begin + end])

    _, length, vocab = header["logits"]["shape"]
    logits = values("logits", "f")[(length - 1) * vocab:length * vocab]
    return values("tokens", "q")[:length].tolist(), logits.index(max(logits))


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if {"ASAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"} & os.environ.keys():
            raise unittest.SkipTest("packages have no sanitizers")
        cls.work = pathlib.Path(tempfile.mkdtemp(dir=os.environ["TEST_TMPDIR"]))
        cls.out = cls.work / "package"
        cls.out.mkdir()
        cls.what = in_runfiles(json.loads((ROOT / "tools/components.package.json").read_text()))
        package.package_library(cls.what, "weft", ROOT, cls.out)

    def test_libraries(self):
        lib = self.out / "lib"
        for name in ("weft", "weft_dist", "weft_train", "weft_data", "weft_aot", "weft_onnx"):
            self.assertTrue((lib / f"lib{name}.so").exists() and (lib / f"pkgconfig/{name}.pc").exists(), name)
        self.assertEqual([f.name for pattern in ("libstdc++*", "libgcc*") for f in lib.glob(pattern)], [])
        self.assertNotIn("libweft.so", package.run("objdump", "-p", lib / "libweft_aot.so"))
        page = (ROOT / "docs/install.md").read_text()
        self.assertIn(package.needs(self.out, package.GLIBC_LIMIT), " ".join(page.split()))
        with self.assertRaisesRegex(package.Failure, r"^lib/lib\S+ needs \S+ of GLIBC_2.\d+; systems with glibc 2.3 "):
            package.needs(self.out, (2, 3))

    def test_version(self):
        """The files that carry the version read it from package.py; pages that name it have the same one."""
        lib = self.out / "lib"
        self.assertIn(f"set(PACKAGE_VERSION {package.VERSION})\n",
                      (lib / "cmake/weft/weftConfigVersion.cmake").read_text())
        self.assertIn(f"\nVersion: {package.VERSION}\n", (lib / "pkgconfig/weft.pc").read_text())
        releases = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
        self.assertEqual(releases[:1], [package.VERSION], "CHANGELOG.md: the newest release is another version")
        archives = set(re.findall(r"weft-[\d.]+-linux-x86_64", (ROOT / "docs/install.md").read_text()))
        self.assertEqual(archives, {f"weft-{package.VERSION}-linux-x86_64"})

    def test_needs_headers(self):
        target = dict(self.what["components"][0]["targets"][0], headers=[])
        with self.assertRaisesRegex(package.Failure, "component wiring has no headers"):
            package.components_of(target, "wiring")

    def test_old_paths(self):
        """A program that includes headers by their paths in release 0.2 compiles."""
        include = self.out / "include/weft"
        old = [path.parent.parent / path.name for folder in sorted(package.FORWARDED)
               for path in (include / folder).glob("*.h")]
        self.assertIn(include / "ops/composite/loss.h", old)
        program = self.work / "old_paths.cc"
        program.write_text("".join(f'#include "{path.relative_to(include)}"\n' for path in old))
        package.run("g++", "-std=c++20", "-fsyntax-only", "-I", include, program)

    def test_projects(self):
        sources = {"template": self.out / "share/weft/template", "components": ROOT / "tools/testing/package"}
        printed = {}
        for name, program in (("template", "first_model"), ("components", "run_step")):
            build = self.work / name
            package.run("cmake", "-S", sources[name], "-B", build, f"-DCMAKE_PREFIX_PATH={self.out}")
            package.run("cmake", "--build", build)
            printed[name] = package.run(build / program)
        self.assertRegex(printed["template"], r"step 500  loss 0\.002")
        job = package.run(self.work / "components/processes", "dp2", "2")
        self.assertRegex(job, r"step 1  loss \S+\n(.*\n)*step 2  loss ")
        self.assertEqual(printed["components"], (self.work / "components/exported_step.txt").read_text())

        self.check_published_model(self.work / "components/published_model")
        old = self.work / "old"
        old.mkdir()
        self.assertIn("train: two steps of GPT: ok\n", package.run(self.work / "components/old_program", old))

        other = self.work / "other"
        other.mkdir()
        (other / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.20)\nproject(other CXX)\n"
                                              "find_package(weft REQUIRED COMPONENTS tpu)\n")
        listed = r"\s+".join("no component tpu; it has: aot weft dist data train onnx".split())  # CMake wraps lines
        with self.assertRaisesRegex(package.Failure, listed):
            package.run("cmake", "-S", other, "-B", other / "build", f"-DCMAKE_PREFIX_PATH={self.out}")

    def check_published_model(self, program):
        """A model of transformers writes the same text by CMake's program and by Bazel's, and begins with the letter
        that transformers gives."""
        fixture, letters = ROOT / "models/testing/hf/fixtures/llama3", "abcdefghijklmnopqrstuvwxyz0123456789 .,?"
        model = self.work / "tiny_llama"
        model.mkdir()
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(fixture / name, model / name)
        shutil.copyfile(ROOT / "models/hf/testdata/letters.json", model / "tokenizer.json")
        tokens, likeliest = first_row(fixture / "expected.safetensors")
        text = "".join(letters[t] for t in tokens)
        written = package.run(program, model, text)
        self.assertEqual(written[0], letters[likeliest])
        self.assertGreater(len(written), 2)
        self.assertEqual(written, package.run(ROOT / "models/examples/published_model", model, text))
        with self.assertRaisesRegex(package.Failure, r"tiny_llama: the model has no chat template; need "):
            package.run(program, model, text, "chat")

    def test_headers_of_examples(self):
        """A program outside the tree finds each header that an example includes, but the examples' own."""
        sources = sorted((ROOT / "models/examples").glob("*.cc"))
        self.assertGreater(len(sources), 10)
        for source in sources:
            for header in re.findall(r'^#include "((?!absl/|models/examples/)[^"]+)"', source.read_text(), re.M):
                self.assertTrue((self.out / "include/weft" / header).is_file(), f"{source.name} includes {header}")

    def errors_of(self, compiler, header, *flags, text=""):
        """The errors of a program that includes `header`, followed by `text`."""
        done = subprocess.run([compiler, *flags, "-fsyntax-only", "-I", self.out / "include/weft", "-x", "c++", "-"],
                              input=f'#include "{header}"\n{text}', text=True, stderr=subprocess.PIPE, cwd=self.work,
                              env={**os.environ, "LC_ALL": "C"})
        return [line.split("rror: ")[1] for line in done.stderr.splitlines() if "rror: " in line]

    def test_other_compilers(self):
        """A compiler that cannot compile Weft gets one error, from each public header."""
        headers = [h for c in self.what["components"] for t in c["targets"] for h in t["headers"]]
        self.assertIn("weft.h", headers)
        for header in headers:
            self.assertEqual(self.errors_of("g++", header, "-std=c++17"),
                             ["Weft needs C++20: add -std=c++20: No such file or directory"], header)
            if OLD_CLANG:
                self.assertEqual(self.errors_of(OLD_CLANG, header, "-std=c++20"),
                                 ["'Weft needs clang 16 or newer, or g++ 12 or newer' file not found"], header)
        self.assertEqual(self.errors_of("g++", "weft.h", "-std=c++20"), [])
        several = "weft::Tensor f(weft::Tensor x) { return x[0, weft::Slice(1, 3)] + x[0, 1]; }\n"
        self.assertEqual(self.errors_of("g++", "weft.h", "-std=c++2b", text=several), [])

    def test_spellings_that_do_not_compile(self):
        """Each of them in everyday.txt gets one error: a static assertion that names the spelling to write."""
        operands, _, missing = cases.read()
        compiled = self.work / "compiled"
        compiled.mkdir()
        include = self.out / "include/weft"
        package.run("g++", "-std=c++20", "-I", include, "-x", "c++-header", include / "weft.h", "-o",
                    compiled / "weft.h.gch")
        names = "Tensor " + ", Tensor ".join(o.name for o in operands)
        self.assertGreater(len(missing), 15)
        for place, snippet, _, text in missing:
            statements, expression = cases.parts(snippet)
            row = (f"using namespace weft;\nvoid row({names}, Parameter p, nn::Linear m) "
                   f"{{ {statements} {expression}{';' if expression else ''} }}\n")
            # g++ loses #pragma GCC diagnostic of a precompiled header.
            by_flag = "comma expression" in text
            precompiled = [] if by_flag else ["-I", compiled]
            errors = self.errors_of("g++", "weft.h", "-std=c++20", *precompiled, text=row)
            self.assertEqual(len(errors), 1, f"{place}: {errors}")
            # Names at the first level are ambiguous before any template of Weft is chosen.
            begin = "" if by_flag or "ambiguous" in text else "static assertion failed: "
            self.assertTrue(errors[0].startswith(begin) and text in errors[0], f"{place}: {errors[0]}; need {text}")

    @unittest.skipUnless(CLANG, "clang++-16 is not installed")
    def test_clang(self):
        include = self.out / "include/weft"
        headers = sorted(str(h.relative_to(include)) for h in include.rglob("*.h"))
        text = "".join(f'#include "{h}"\n' for h in headers)
        done = subprocess.run([CLANG, "-std=c++20", "-fsyntax-only", "-Werror", "-I", include, "-x", "c++", "-"],
                              input=text, text=True, stderr=subprocess.PIPE, cwd=self.work)
        self.assertEqual(done.returncode, 0, done.stderr)


class ArchiveTest(unittest.TestCase):
    def test_equal_files_give_equal_bytes(self):
        with tempfile.TemporaryDirectory() as work:
            folder, name = pathlib.Path(work) / "package", package.archive_name("weft")
            self.assertRegex(name, r"^weft-\d+\.\d+\.\d+-linux-\w+$")
            (folder / "lib").mkdir(parents=True)
            (folder / "lib/b.so").write_text("b")
            (folder / "lib/a.so").write_text("a")
            (folder / "lib/a.so").chmod(0o755)
            (folder / package.MARKER).write_text("lib/a.so\n")
            bytes_of = []
            for place in ("first", "second"):
                path = pathlib.Path(work) / place / (name + ".tar.xz")
                path.parent.mkdir()
                package.write_archive(folder, path)
                self.assertEqual([f.name for f in path.parent.iterdir()], [path.name])
                bytes_of.append(path.read_bytes())
                os.utime(folder / "lib/a.so", (1, 1))
            self.assertEqual(bytes_of[0], bytes_of[1])
            with tarfile.open(path) as tar:
                self.assertEqual([(e.name, e.mode) for e in tar],
                                 [(name, 0o755), (f"{name}/lib", 0o755), (f"{name}/lib/a.so", 0o755),
                                  (f"{name}/lib/b.so", 0o644)])


class ReplaceTest(unittest.TestCase):
    def test_only_an_earlier_package(self):
        with tempfile.TemporaryDirectory() as work:
            out = pathlib.Path(work) / "out"

            def write(text, force=True):
                package.replace(out, "//:weft", force, lambda folder: (folder / "lib").mkdir() or
                                (folder / "lib/a.so").write_text(text))
                self.assertEqual((out / "lib/a.so").read_text(), text)
                self.assertEqual([f.name for f in out.parent.iterdir()], ["out"])

            write("1", force=False)
            write("2")
            with self.assertRaisesRegex(package.Failure, "out exists and is not empty; --force replaces an earlier"):
                write("3", force=False)
            notes = out / "share/notes.txt"
            notes.parent.mkdir()
            notes.write_text("mine")
            with self.assertRaisesRegex(package.Failure, "that this version of package did not write, such as share/n"):
                write("3")
            self.assertEqual((notes.read_text(), (out / "lib/a.so").read_text()), ("mine", "2"))
            notes.unlink()
            write("3")
            (out / package.MARKER).unlink()
            with self.assertRaisesRegex(package.Failure, "out exists and is not empty and holds no earlier package"):
                write("4")
            shutil.rmtree(out)
            out.write_text("a file")
            with self.assertRaisesRegex(package.Failure, "out exists and is not empty"):
                write("4")


if __name__ == "__main__":
    unittest.main()
