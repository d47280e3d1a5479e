#!/usr/bin/env python3
"""graph and profile: each form of output, dumps of a program, and one line for each damaged file and wrong flag."""
import json
import os
import resource
import subprocess
import sys
import tempfile

GRAPH = os.path.join("tools", "graph", "graph")
PROFILE = os.path.join("tools", "profile", "profile")
STEP = ["--model", "gpt", "--config", "gpt_tiny", "--batch_size", "2", "--seq_len", "16"]

failures = []


def run(*command, dump=None):
    env = dict(os.environ, WEFT_DUMP=dump) if dump else None
    done = subprocess.run(command, capture_output=True, env=env)
    return done.returncode, done.stdout, done.stderr.decode()


def expect(what, condition):
    if not condition:
        failures.append(what)


def expect_error(part, *command, code=1):
    got, _, errors = run(*command)
    lines = errors.strip().splitlines()
    expect(f"{command[1:]}: exit code {got}, need {code}: {errors}", got == code)
    expect(f"{command[1:]}: {len(lines)} lines, need '{part}' in one: {errors}", len(lines) == 1 and part in lines[0])


def forms(folder):
    for form in ["text", "dot", "svg", "proto", "json", "html", "onnx"]:
        out = os.path.join(folder, f"step.{form}")
        code, _, errors = run(GRAPH, *STEP, "--format", form, "--out", out)
        expect(f"--format {form}: exit code {code}: {errors}", code == 0 and os.path.getsize(out) > 1000)
    with open(os.path.join(folder, "step.json")) as f:
        graphs = json.load(f)["graphs"]
    expect("stages", [g["name"] for g in graphs] == ["captured", "joint", "fused", "scheduled"])
    last = graphs[-1]
    with_kernel = [d for d in last["details"].values() if "kernel" in d]
    expect("kernels", with_kernel and all(last["kernels"][d["kernel"]] for d in with_kernel))
    expect("times", all(d["predicted_us"] >= 0 for d in with_kernel))
    with open(os.path.join(folder, "step.html")) as f:
        page = f.read()
    expect("the page requests nothing", "default-src 'none'" in page and "src=\"http" not in page)
    code, mesh, errors = run(GRAPH, *STEP, "--mesh", "dp2,tp2", "--format", "json")
    expect(f"--mesh: exit code {code}: {errors}", code == 0)
    graphs = json.loads(mesh)["graphs"]
    expect("a mesh has a partitioned graph", graphs[2]["name"] == "partitioned")
    expect("placements", any("@" in d.get("placement", "") for d in graphs[1]["details"].values()))
    code, text, errors = run(GRAPH, *STEP, "--mesh", "pp2", "--pipeline", "zb_h1", "--stage", "scheduled")
    expect(f"--mesh pp2: exit code {code}: {errors}", code == 0 and b"send_start" in text)
    code, text, errors = run(PROFILE, *STEP, "--mesh", "pp2", "--rank", "1", "--steps", "1")
    expect(f"--mesh pp2 --rank 1: exit code {code}: {errors}", code == 0 and b"recv_start" in text)


def onnx_files(folder):
    """A failure after the weights have been computed leaves the files of an earlier run."""
    out = os.path.join(folder, "kept.onnx")
    onnx = [GRAPH, *STEP, "--format", "onnx", "--weights", "external", "--out", out]
    code, _, errors = run(*onnx)
    expect(f"--weights external: exit code {code}: {errors}",
           code == 0 and min(os.path.getsize(path) for path in (out, out + ".data")) > 1000)
    for path in (out, out + ".data"):
        with open(path, "w") as f:
            f.write("earlier")
    expect_error("--out and --example name the same file", *onnx, "--example", out, code=2)
    expect_error("--example: cannot write into folder", *onnx, "--example", GRAPH)
    expect_error("--example: cannot create folder", *onnx, "--example", os.path.join(folder, "none", "example"))
    for path in (out, out + ".data"):
        with open(path) as f:
            expect(f"{path} is as it was", f.read() == "earlier")


def dumps(folder):
    dump = os.path.join(folder, "dump")
    run(GRAPH, *STEP, dump=dump)
    records = [f for f in os.listdir(dump) if f.endswith(".record")]
    expect(f"one record: {records}", len(records) == 1)
    record = os.path.join(dump, records[0])
    code, out, errors = run(GRAPH, "--dump", dump, "--format", "json")
    expect(f"--dump: exit code {code}: {errors}", code == 0)
    graphs = json.loads(out)["graphs"]
    expect("graphs of a dump", len(graphs) > 5 and "kernels" in graphs[-1] and "kernels" not in graphs[0])
    code, out, errors = run(PROFILE, "--record", record)
    expect(f"--record: exit code {code}: {errors}", code == 0 and b"This record has no measured times" in out)
    expect_error("has no measured times", PROFILE, "--diff", record, record)
    expect_error("has no measured times", PROFILE, "--record", record, "--roofline", os.path.join(folder, "no.svg"))
    code, out, errors = run(PROFILE, "--record", record, "--what_if", "products=2")
    expect(f"--what_if without times: exit code {code}: {errors}", code == 0 and b"these times are predicted" in out)

    with open(record, "rb") as f:
        good = f.read()
    bad = os.path.join(folder, "bad.record")
    for name, content in {"empty": b"", "cut": good[: len(good) // 2], "text": b"hello\n", "zeros": bytes(100)}.items():
        with open(bad, "wb") as f:
            f.write(content)
        expect_error("--record needs a file of profile --save_record, WEFT_DUMP or StepRecord::to_proto(): ", PROFILE,
                     "--record", bad)
        expect_error("--diff needs a file of profile", PROFILE, "--diff", bad, record)
        with open(record, "wb") as f:
            f.write(content)
        expect_error(os.path.basename(record), GRAPH, "--dump", dump, "--format", "json")
    with open(record, "wb") as f:
        f.write(good)
    other = os.path.join(folder, "other")
    os.mkdir(other)
    first = sorted(f for f in os.listdir(dump) if f.endswith(".wir"))[0]
    for source, name in [(os.path.join(dump, first), "x.wir"), (record, "x.record")]:
        with open(source, "rb") as f, open(os.path.join(other, name), "wb") as to:
            to.write(f.read())
    expect_error("does not fit the graph beside it", GRAPH, "--dump", other, "--format", "json")
    run(GRAPH, *STEP, "--forward", dump=dump)
    records = [f for f in os.listdir(dump) if f.endswith(".record")]
    expect(f"a second run replaces the dump: {records}", len(records) == 1)
    expect_error("no file or folder", GRAPH, "--dump", os.path.join(folder, "none"))
    expect_error("none", PROFILE, "--record", os.path.join(folder, "none"))
    expect_error("need a .wir file", GRAPH, "--dump", bad)


def measured(folder):
    """A record that was made after the step has run gives the dumped graph measured times."""
    dump, record = os.path.join(folder, "measured"), os.path.join(folder, "measured.record")
    code, _, errors = run(PROFILE, *STEP, "--steps", "2", "--save_record", record, dump=dump)
    expect(f"WEFT_DUMP: exit code {code}: {errors}", code == 0)

    def launches(*flags):
        code, out, errors = run(GRAPH, "--dump", dump, "--format", "json", *flags)
        expect(f"--dump {flags}: exit code {code}: {errors}", code == 0)
        return [d for d in json.loads(out)["graphs"][-1]["details"].values() if "predicted_us" in d]

    before, after = launches(), launches("--record", record)
    expect("a dump has predicted times", before and not any("measured_us" in d for d in before))
    expect("--record has measured ones", len(after) == len(before) and all(d["measured_us"] > 0 for d in after))
    code, svg, errors = run(GRAPH, "--dump", dump, "--record", record, "--stage", "scheduled_order", "--format", "svg")
    expect(f"--record, svg: exit code {code}: {errors}", code == 0 and b" us<" in svg)
    dumped = [os.path.join(dump, f) for f in os.listdir(dump) if f.endswith(".record")][0]
    expect_error("has no measured times", GRAPH, "--dump", dump, "--record", dumped, "--format", "json")
    run(PROFILE, *STEP, "--forward", "--steps", "1", "--save_record", record)
    expect_error("fit no scheduled graph", GRAPH, "--dump", dump, "--record", record, "--format", "json")
    expect_error("--record needs --dump", GRAPH, *STEP, "--format", "json", "--record", record, code=2)
    for form in ["text", "dot", "proto", "onnx"]:
        expect_error(f"--format {form} shows no times", GRAPH, "--dump", dump, "--record", record, "--format", form,
                     code=2)


def profiles(folder):
    a, b = os.path.join(folder, "a.record"), os.path.join(folder, "b.record")
    code, out, errors = run(PROFILE, *STEP, "--steps", "2", "--save_record", a, "--json")
    expect(f"profile: exit code {code}: {errors}", code == 0)
    profile = json.loads(out)
    expect("time of the step", profile["step_us"] > 0 and profile["all"]["us"] > 0)
    for flag, name in [("--roofline", "r.svg"), ("--memory", "m.svg"), ("--memory", "m.html"), ("--trace", "t.svg"),
                       ("--trace", "t.json")]:
        path = os.path.join(folder, name)
        code, _, errors = run(PROFILE, *STEP, "--steps", "1", flag, path, "--save_record", b)
        expect(f"{flag} {name}: exit code {code}: {errors}", code == 0 and os.path.getsize(path) > 1000)
    with open(os.path.join(folder, "t.json")) as f:
        expect("a trace has events", len(json.load(f)["traceEvents"]) > 10)
    for path, why in [(os.path.join(folder, "none", "t.json"), "No such file"), ("/dev/full", "No space left")]:
        code, _, errors = run(PROFILE, *STEP, "--steps", "1", "--weft_trace", path)
        expect(f"--weft_trace {path}: exit code {code}: {errors}",
               code == 1 and errors.count("\n") == 1 and "WEFT_TRACE: " in errors and path in errors and why in errors)
    code, out, errors = run(PROFILE, "--diff", a, b)
    expect(f"--diff: exit code {code}: {errors}", code == 0 and b"launches" in out)


def wrong_flags(folder):
    a = os.path.join(folder, "a.record")
    expect_error("name the same file", PROFILE, "--record", a, "--out", a, code=2)
    expect_error("--diff and --out name the same file", PROFILE, "--diff", "b", a, "--out", a, code=2)
    expect_error("--diff reads two files; leave out --record", PROFILE, "--diff", a, a, "--record", a, code=2)
    for flag, value in [("--model", "llama"), ("--model", "gpt"), ("--steps", "10"), ("--rank", "0"),
                        ("--device", "cpu")]:
        expect_error("leave out the flags of a model", PROFILE, "--record", a, flag, value, code=2)
    for flag in ["--record", "--diff", "--checkpoint", "--save_record", "--out"]:
        expect_error(f"{flag}: got ''; need a path", PROFILE, flag, "", code=2)
    expect_error("--what_if has ''", PROFILE, *STEP, "--what_if", "", code=2)
    expect_error("--record is given twice", PROFILE, "--record", a, "--record", a, code=2)
    expect_error("partitioned needs --mesh", GRAPH, *STEP, "--stage", "partitioned", code=2)
    expect_error("--out: cannot write", GRAPH, *STEP, "--out", folder)
    expect_error("WEFT_MACHINE needs a file of doctor --measure --out", GRAPH, *STEP, "--format", "html", "--out",
                 os.path.join(folder, "x.html"), "--weft_machine", a)
    for flag in ["--save_record", "--roofline", "--memory", "--trace", "--out"]:
        for path in [folder, os.path.join(folder, "none", "x.svg")]:
            expect_error(f"{flag}: cannot write", PROFILE, *STEP, flag, path)
    expect_error("--diff goes with", PROFILE, "--diff", a, "--roofline", "r.svg", a, code=2)
    expect_error("leave out the flags of a model", GRAPH, "--dump", folder, "--model", "llama", code=2)
    expect_error("--format is 'xml'", GRAPH, *STEP, "--format", "xml", code=2)
    expect_error("--stage is 'last'", GRAPH, *STEP, "--stage", "last", code=2)
    expect_error("--format html needs --out", GRAPH, *STEP, "--format", "html", code=2)
    expect_error("--by is 'op'", PROFILE, *STEP, "--by", "op", code=2)
    expect_error("--trace is 'x.txt'", PROFILE, *STEP, "--trace", "x.txt", code=2)
    expect_error("--diff needs two", PROFILE, "--diff", "a", code=2)
    for program in [GRAPH, PROFILE]:
        for why, flags in [("--model is 'gpt9'", ["--model", "gpt9"]), ("--config is 'tiny'", ["--config", "tiny"]),
                           ("--seq_len: got '-1'", ["--seq_len", "-1"]), ("--seq_len is 99999", ["--seq_len", "99999"]),
                           ("--batch_size: got '0'", ["--batch_size", "0"]), ("--dtype is 'f8'", ["--dtype", "f8"]),
                           ("--microbatches: got 3", ["--mesh", "pp2", "--microbatches", "3"]),
                           ("--pipeline: no schedule", ["--mesh", "pp2", "--pipeline", "zz"]),
                           ("need --mesh with a dimension pp", ["--stages", "blocks.1"]),
                           ("--mesh: ", ["--mesh", "dp"]), ("--mesh dp3: a batch", ["--mesh", "dp3"])]:
            expect_error(why, program, *flags, code=2)
    expect_error("--device: got 'tpu'", PROFILE, "--device", "tpu", code=2)
    expect_error("unknown flag --device", GRAPH, "--device", "cpu", code=2)  # it runs nothing
    for how in ["interp", "eager"]:
        expect_error(f"WEFT_EXEC: got '{how}'; need compiled", PROFILE, *STEP, "--weft_exec", how, code=2)
    expect_error("no checkpoint here", PROFILE, "--checkpoint", folder)
    expect_error("--rank is 2", PROFILE, *STEP, "--mesh", "dp2", "--rank", "2", code=2)


def outputs(folder):
    """A file that cannot be written does not lose the others; a reader that ended is no error; a full disk is."""
    a, kept = os.path.join(folder, "a.record"), os.path.join(folder, "kept.svg")
    limit = os.path.getsize(a) - 1
    command = [PROFILE, "--record", a, "--save_record", os.path.join(folder, "large.record"), "--memory", kept]
    done = subprocess.run(command, capture_output=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    expect(f"a file beyond the limit: {done}", done.returncode == 1 and done.stderr.count(b"\n") == 1 and
           b"large.record': File too large" in done.stderr and b"all launches" in done.stdout and os.path.exists(kept))
    for command in [[GRAPH, *STEP], [PROFILE, "--record", a], [PROFILE, "--help"]]:
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE)
        os.close(write)
        expect(f"{command} without a reader: {done}", done.returncode == 141 and not done.stderr)
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
        expect(f"{command} > /dev/full: {done}",
               done.returncode == 1 and b"standard output: No space left on device" in done.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for part in [forms, onnx_files, dumps, measured, profiles, wrong_flags, outputs]:
            part(folder)
    for failure in failures:
        print("FAILED:", failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
