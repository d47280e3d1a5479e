#!/usr/bin/env python3
"""slow_link.py BIN [PART...]: replicas on two hosts with 2 Mbit/s between them. Parts: dp blocking streaming down.

BIN is out/bin after a build of //models/gpt:train, //tools:launch and //tools:simulate. The hosts are network
namespaces, so this needs root. dp sums gradients in each step; blocking and streaming are DiLoCo. The link is throttled
and free in turn while a run goes on. Prints tokens/s of both, the share of the throttled time in which a replica
computes, beside the prediction of //tools:simulate, and the bytes of the run and of its interface beside the closed
form. In the part down the link is away for 5 s in an exchange; the checkpoints must equal the files of --replay."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

MBIT, SEQ_LEN = 2, 128
HOSTS = {"a": "10.77.0.1", "b": "10.77.0.2"}
BITS = {"f32": 32, "int8": 8 + 32 / 256, "int4": 4 + 32 / 256}  # a value, with its part of a scale
STREAMING = {"diloco": 40, "outer_fragments": 4, "outer_delay": 8, "outer_alpha": 0.5, "outer_wire": "int4"}
BLOCKING = {"diloco": 40, "outer_fragments": 1, "outer_delay": 0, "outer_wire": "int8"}


def enter(host, command):
    return ["nsenter", f"--net=/run/netns/{host}", *map(str, command)]


def ip(host, *arguments):
    return subprocess.run(["ip", "-n", host, *arguments], check=True, capture_output=True, text=True).stdout


def make_hosts():
    for host in HOSTS:
        subprocess.run(["ip", "netns", "add", host], check=True)
        ip(host, "link", "set", "lo", "up")
    ip("a", *"link add wire type veth peer name wire netns b".split())
    for host, address in HOSTS.items():
        ip(host, "address", "add", address + "/24", "dev", "wire")
        ip(host, *"link set wire gso_max_segs 1 up".split())  # so that the counters have the headers of all packets


def throttle(on):
    rule = f"add dev wire root tbf rate {MBIT}mbit burst 16kb latency 400ms" if on else "del dev wire root"
    for host in HOSTS:
        subprocess.run(enter(host, ["tc", "qdisc", *rule.split()]), check=True)


def sent():
    """The bytes that an interface has sent: the mean of both hosts."""
    return statistics.mean(json.loads(ip(h, "-j", "-s", "link", "show", "wire"))[0]["stats64"]["tx"]["bytes"]
                           for h in HOSTS)


class Run:
    """A replica on each host, and the service of replicas on the first one. Without diloco: a rank on each host."""

    def __init__(self, o, name, flags):
        self.bin, self.folder, self.processes, self.rows, self.ends = o.bin, o.folder / name, [], [], []
        self.folder.mkdir(parents=True)
        self.flags = {"config": "gpt_shakespeare", "batch_size": 24, "seq_len": SEQ_LEN, "threads": 1, "sample": 0,
                      "eval_every": 0, "timeout": 300, "set": o.set, **flags}
        service = HOSTS["a"] + ":29600"
        variables = {"JOB_TOKEN": "secret", "REPLICAS_TOKEN": "secret"}
        job = {"WORLD_SIZE": "2", "MASTER_ADDR": HOSTS["a"], "MASTER_PORT": "29500", "LOCAL_RANK": "0",
               "LOCAL_WORLD_SIZE": "1"}
        if "diloco" in flags:
            serve = [o.bin / "tools/launch", "--serve", service, "--journal", self.folder / "journal", "--replicas=2"]
            self.start("a", "service", serve, variables)
        for i, host in enumerate(HOSTS):
            own = {"REPLICA": host, "REPLICAS": service} if "diloco" in flags else {"RANK": str(i), **job}
            self.start(host, host, self.command("run"), {**variables, **own})

    def command(self, name, *more):
        diloco = "diloco" in self.flags
        flags = {**self.flags, "mesh": "replica2" if diloco else "dp2", "resume": "true" if diloco else "false",
                 "checkpoint_dir": self.folder / name, "metrics": self.folder / f"{name}.jsonl"}
        return [self.bin / "models/gpt/train", *(f"--{k}={v}" for k, v in flags.items() if v != ""), *more]

    def start(self, host, name, command, variables):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(enter(host, command), stdout=log, stderr=log, cwd=self.folder,
                                                   env={**os.environ, **variables}))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def wait(self, what, state, seconds=900):
        """Reads the metrics until `state`."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(FileNotFoundError):
                for line in (self.folder / "run.jsonl").read_text().split("\n")[len(self.rows):-1]:
                    self.rows.append(json.loads(line))
                    self.ends.append(time.monotonic())
            if state():
                return
            failed = [p.returncode for p in self.processes if p.poll()]
            assert not failed and time.monotonic() < end, \
                f"no {what}; exit codes {failed}; {self.folder}\n{self.log('a')[-1500:]}\n{self.log('b')[-1500:]}"
            time.sleep(0.005)

    def steps(self, n):
        self.wait(f"step {n}", lambda: len(self.rows) >= n)

    def in_turn(self, first, turns, lengths, settle=0):
        """From step `first` on, frees and throttles the link for these numbers of steps, and does not count the first
        `settle` of them. Returns ([seconds of a turn], [seconds in which each step computes]) for both."""
        got = {on: ([], []) for on in lengths}
        self.steps(first)
        for _ in range(turns):
            for on, length in lengths.items():
                begin = len(self.rows) + settle
                if on:
                    throttle(True)
                self.steps(begin + length)
                if on:
                    throttle(False)
                got[on][0].append(self.ends[begin + length - 1] - self.ends[begin - 1])
                got[on][1].extend(row["step_ms"] / 1e3 for row in self.rows[begin:begin + length])
        return got

    def end(self):
        """The replicas end by themselves."""
        self.wait("end", lambda: all(p.poll() == 0 for p in self.processes[-2:]))
        self.kill()

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


def values_in(run):
    """The number of values in the newest weights of a run."""
    with open(max(run.folder.glob("run/step_*"), key=lambda p: int(p.name[5:])) / "model.safetensors", "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    ends = (t["data_offsets"] for name, t in header.items() if name != "__metadata__")
    return sum(end - begin for begin, end in ends) // 4


def bytes_in(pattern, text):
    number, unit = re.search(pattern + r" ([\d.]+) (\w+)", text).groups()
    return float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit]


def simulated(o, run, method, values, seconds):
    """The utilisation by //tools:simulate. `method` is a row of its table."""
    f, file = run.flags, run.folder / "simulated.json"
    flags = {"parameters": values, "replicas": 2, "bandwidth_gbit": MBIT / 1e3, "exchange_latency": 0,
             "step_seconds": statistics.mean(seconds), "jitter": statistics.stdev(seconds),
             "outer_bits": BITS[f.get("outer_wire", "f32")], "inner_steps": f.get("diloco", 100),
             "fragments": f.get("outer_fragments", 1), "overlap_steps": f.get("outer_delay", 0), "json": file}
    subprocess.run([o.bin / "tools/study/simulate", "--diloco", *(f"--{k}={v}" for k, v in flags.items())], check=True,
                   stdout=subprocess.DEVNULL)
    return json.loads(file.read_text())["methods"][method]["simulated"]["mean"]


def report(o, run, got, method, compute):
    """`compute`: seconds that throttled steps compute."""
    free, slow = (len(got[on][1]) * run.flags["batch_size"] * SEQ_LEN / sum(got[on][0]) for on in (False, True))
    steps = len(got[True][1])
    model = simulated(o, run, method, values_in(run), compute)
    used = statistics.mean(compute) * steps / sum(got[True][0])
    print(f"  {free:.0f} tokens/s free, {slow:.0f} throttled: {slow / free:.3f}; {len(got[True][0])} turns\n"
          f"  a step computes {1e3 * statistics.mean(compute):.0f} ms +- {1e3 * statistics.stdev(compute):.0f}; "
          f"utilisation {used:.3f}, simulated {model:.3f}: {100 * (used / model - 1):+.1f} %")


def part_dp(o):
    run = Run(o, "dp", {"steps": 32, "checkpoint_every": 32})
    got = run.in_turn(10, 1, {False: 15, True: 3}, settle=1)
    run.end()
    report(o, run, got, 0, got[False][1])


def part_diloco(o, name, flags):
    between = flags["diloco"] // flags["outer_fragments"]
    turn = max(between, 20)
    # Changes come in the middle between the end of an exchange and the begin of the next one.
    first = turn + (between + flags["outer_delay"]) // 2
    last = -(-(first + 2 * o.turns * turn) // flags["diloco"]) * flags["diloco"]
    run = Run(o, name, {**flags, "steps": last, "checkpoint_every": last})
    run.steps(2)
    before, begin = sent(), len(run.rows)
    run.steps(between - 1)  # until the first exchange, only the service and its clients talk
    beats = (sent() - before) / (run.ends[-1] - run.ends[begin - 1])
    got = run.in_turn(first, o.turns, {False: turn, True: turn})
    run.end()
    on_wire = (sent() - before) / last
    beats *= (time.monotonic() - run.ends[begin - 1]) / last
    report(o, run, got, 4, got[True][1])
    closed = values_in(run) * BITS[flags["outer_wire"]] / 8 / flags["diloco"]  # 2 (R - 1) / R is 1
    own = [bytes_in(f"{last} steps:", run.log(host)) for host in HOSTS]
    print(f"  bytes of a step: closed form {closed:.0f}; sent {own[0]:.0f} and {own[1]:.0f} "
          f"({100 * (statistics.mean(own) / closed - 1):+.1f} %); by the interface {on_wire:.0f} "
          f"({100 * (on_wire / closed - 1):+.1f} %), with {beats:.0f} for the service: without them "
          f"{100 * ((on_wire - beats) / closed - 1):+.1f} %")


def part_blocking(o):
    part_diloco(o, "blocking", BLOCKING)


def part_streaming(o):
    part_diloco(o, "streaming", STREAMING)


def rows_of(path):
    """The rows of metrics, without times."""
    rows = map(json.loads, path.read_text().split("\n")[:-1] if path.exists() else [])
    return [{k: v for k, v in row.items() if k not in ("step_ms", "tokens_per_s", "mfu")} for row in rows]


def part_down(o):
    flags = {**STREAMING, "set": "layers=2,dim=64", "steps": 100000, "checkpoint_every": 40, "keep": 0, "warmup": 10}
    run = Run(o, "down", flags)
    throttle(True)
    run.steps(61)  # an exchange has begun after step 60
    ip("b", "link", "set", "wire", "down")
    begin = time.monotonic()
    run.wait("", lambda: time.monotonic() > begin + 5)
    made = sum(end > begin for end in run.ends)
    ip("b", "link", "set", "wire", "up")
    run.wait("return of b", lambda: "replica b has the state" in run.log("b"))
    print(f"  in the 5 s a makes {made} steps; b is back after {time.monotonic() - begin:.1f} s")
    run.steps(len(run.rows) + 100)
    run.processes[1].send_signal(signal.SIGTERM)
    codes = [p.wait(300) for p in run.processes[1:]]
    assert codes == [143, 143], f"exit codes {codes}"
    run.kill()
    throttle(False)
    print("  " + "\n  ".join(line for line in run.log("a").splitlines() if line.startswith("view ")))
    rows = rows_of(run.folder / "run.jsonl")
    with open(run.folder / "replay.log", "wb") as log:
        again = subprocess.Popen(run.command("replay", f"--replay={run.folder / 'journal'}"), stdout=log, stderr=log)
        end = time.monotonic() + 900
        while len(rows_of(run.folder / "replay.jsonl")) <= len(rows):
            assert again.poll() is None and time.monotonic() < end, run.log("replay")[-1500:]
            time.sleep(0.2)
        again.kill()
        again.wait()
    assert rows == rows_of(run.folder / "replay.jsonl")[:len(rows)], "the replay has other metrics"
    # A signal ended the run: its last checkpoint is at a step of which the replay saves none.
    saved = sorted(p for p in run.folder.glob("run/step_*") if int(p.name[5:]) < len(rows))
    wrong = [f"{p.name}/{f}" for p in saved for f in ("model.safetensors", "optimizer.safetensors", "state.json")
             if (p / f).read_bytes() != (run.folder / "replay" / p.name / f).read_bytes()]
    assert not wrong, f"the replay has other bytes: {wrong}"
    print(f"  {len(saved)} checkpoints and the metrics of {len(rows)} steps equal the replay's")


def main():
    parts = {name[5:]: part for name, part in globals().items() if name.startswith("part_") and name != "part_diloco"}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bin", type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; all by default")
    parser.add_argument("--set", default="", help="fields of gpt_shakespeare, as layers=2,dim=64, except in down")
    parser.add_argument("--turns", type=int, default=6, help="how often the link is free and throttled")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(f"/tmp/slow_link.{os.getpid()}"))
    o = parser.parse_args()
    if wrong := [name for name in o.parts if name not in parts]:
        parser.error(f"no part {wrong[0]}; there are {', '.join(parts)}")
    if "SLOW_LINK_INSIDE" not in os.environ:
        os.environ["SLOW_LINK_INSIDE"] = "1"
        o.folder.mkdir(parents=True)
        apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c",
                 'mkdir -p /run/netns && mount -t tmpfs none /run/netns && exec "$@"', "sh"]
        os.execvp(apart[0], [*apart, sys.executable, *sys.argv, f"--folder={o.folder}"])
    make_hosts()
    for name in o.parts or parts:
        print(f"{name}:", flush=True)
        try:
            parts[name](o)
        except AssertionError as e:
            sys.exit(f"FAILED: {name}: {e}")
    print(f"outputs: {o.folder}")


if __name__ == "__main__":
    main()
