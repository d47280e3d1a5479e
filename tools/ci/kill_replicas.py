#!/usr/bin/env python3
"""kill_replicas.py TRAIN: kills replicas of a run at random instants, and compares the run with its replay.

TRAIN is //models/gpt:train or another family's. `train --restarts` starts all replicas on this host. With --launch,
which is //tools:launch, this program starts the service and each replica, and also kills the service and stops ranks.
One of three kills comes while a replica comes back. Checkpoints and metrics must equal the files of --replay, and no
committed step of a replica that lives may be lost. Prints the times that the kills cost. Keeps its new --folder."""
import argparse
import collections
import contextlib
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

EVERY, ROWS = 20, 2  # steps between checkpoints; rows of a replica in a batch
Kill = collections.namedtuple("Kill", "time kind name")


def rows_of(path, most=1 << 40):
    """The objects of the complete lines in the last `most` bytes of a file of metrics."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        file.seek(begin := max(0, os.fstat(file.fileno()).st_size - most))
        return [json.loads(line) for line in file.read().split(b"\n")[begin > 0:-1]]
    return []


def members(view, healed=True):
    """The incarnations of a view; without `healed`, only members that have the state at its start."""
    return {(m["name"], m["incarnation"]) for m in view["members"] if healed or not m.get("heals")}


class Run:
    def __init__(self, o):
        self.o, self.dice, self.folder, self.log = o, random.Random(o.seed), o.folder, open(o.folder / "log", "wb")
        self.replicas = int(o.mesh.split(",")[0][len("replica"):])
        self.size = 2 ** o.mesh.count(",")  # ranks of a replica: each further dimension has two
        self.journal = o.folder / "run.journal"
        self.steps, self.views = [], []  # (time, step) of the metrics; (time, number of earlier steps, view)
        self.later, self.kills, self.starts, self.processes, self.hit, self.ending = [], [], [], {}, set(), False
        if o.launch:
            self.serve()
            for i in range(self.replicas):
                self.start(str(i))
        else:
            self.processes["all"] = self.train("run", "--resume", "--restarts=1000")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        """Reads the metrics and the journal all the time."""
        last, size, at, metrics = {}, -1, 0, self.folder / "run.jsonl"
        while not time.sleep(0.001):
            now, rows = time.time(), []
            if metrics.exists() and size != (size := metrics.stat().st_size):
                rows = rows_of(metrics, 1 << 15)
            # Read after the rows, because a view is there before the row of its first step.
            data = self.journal.read_bytes() if self.journal.exists() else b""
            while len(data) > at and len(data) >= (end := at + 16 + int.from_bytes(data[at:at + 4], "little")):
                self.views += [(now, len(self.steps), json.loads(data[at + 16:end]))] if at else []  # not the title
                at = end
            new = rows[rows.index(last) + 1:] if last in rows else rows[-1:]  # after a takeover, the last row is new
            self.steps += [(now, row["step"]) for row in new]
            last = rows[-1] if rows else last

    def train(self, folder, *more, **variables):
        o, out = self.o, self.folder / folder
        command = [o.train, f"--config={o.config}", "--data=synthetic", f"--mesh={o.mesh}", "--steps=1000000",
                   "--threads=1", f"--batch_size={ROWS * self.replicas}", "--seq_len=32", f"--checkpoint_every={EVERY}",
                   "--keep=0", "--warmup=10", "--timeout=60", f"--checkpoint_dir={out}", f"--metrics={out}.jsonl"]
        return subprocess.Popen(command + [*more], stdout=self.log, stderr=self.log, env={**os.environ, **variables})

    def start(self, name):
        self.hit.discard(name)
        self.starts.append((time.time(), name))
        self.processes[name] = self.train("run", "--resume", REPLICA=name, REPLICAS=self.o.address)

    def serve(self):
        command = [self.o.launch, "--serve", self.o.address, "--journal", self.journal, f"--replicas={self.replicas}"]
        self.service = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def look(self):
        """Starts processes again that have ended."""
        for due in [x for x in self.later if x[0] <= time.time()]:
            self.later.remove(due)
            due[1]()
        for name, process in list(self.processes.items()):
            if not self.ending and process.poll() is not None:
                assert name in self.hit, f"replica {name} ended by itself with code {process.returncode}"
                self.start(name)

    def wait(self, what, state, seconds=60):
        end = time.time() + seconds
        while not state():
            self.look()
            assert time.time() < end, f"no {what} in {seconds} s"
            time.sleep(0.003)

    def ranks(self):
        """(replica, rank, process) of ranks that run, and of processes that start them, whose rank is "starter"."""
        found, open_ = [], [p.pid for p in self.processes.values()]
        while open_:
            process = pathlib.Path(f"/proc/{(pid := open_.pop())}")
            with contextlib.suppress(OSError):
                e = dict(x.partition("=")[::2] for x in (process / "environ").read_text().split("\0"))
                rank = e.get("RANK", "0" if self.size == 1 and "REPLICA" in e else "starter")
                found += [(e["REPLICA"], rank, pid)] if "REPLICA" in e else []
                open_ += map(int, (process / f"task/{pid}/children").read_text().split()) if rank == "starter" else []
        return sorted(found)

    def all_train(self):
        """Whether all replicas have made a step since the last kill of one. No view follows a stop without service."""
        at, _, view = self.views[-1] if self.views else (0, 0, {"members": [], "start": 0})
        killed = max([k.time for k in self.kills if k.name and not k.kind.startswith("stop")], default=0)
        made = at > killed and self.steps[-1:] > [(at, view["start"])]
        return made and len(view["members"]) == self.replicas and not self.later

    def kill(self, kind):
        """Kills or stops a process at a random instant; of five times, it kills a replica with the service once."""
        healing = kind == "kill" and self.dice.random() < 1 / 3
        all_run = lambda: sum(rank != "starter" for _, rank, _ in self.ranks()) == self.replicas * self.size
        self.wait("start or step of all replicas", all_run if healing else self.all_train)
        end = time.time() + self.dice.random() * (1.5 if healing else 0.5)
        self.wait("", lambda: time.time() > end)
        victims, trains = [r for r in self.ranks() if kind != "stop" or r[1] != "starter"], self.all_train()
        if kind == "service":
            self.service.kill()
            self.service.wait()
            self.kills.append(Kill(time.time(), "service", ""))
            self.later.append((time.time() + self.dice.random(), self.serve))
        if not victims or (kind == "service" and self.dice.random() > 0.2):
            return
        name, rank, pid = self.dice.choice(victims)
        self.hit.add(name)
        subprocess.call(["kill", "-STOP" if kind == "stop" else "-KILL", str(pid)])
        what = f"{kind if trains else 'healing,'} {'' if rank == 'starter' else 'rank '}{rank}"
        self.kills.append(Kill(time.time(), what, name))
        if kind == "stop":
            go_on = lambda: subprocess.call(["kill", "-CONT", str(pid)])
            self.later.append((time.time() + 2.5 + self.dice.random(), go_on))

    def finish(self):
        """Ends the run by a signal, and makes it again. Returns its last step."""
        self.wait("step of all replicas at the end", self.all_train)
        self.ending = True
        self.dice.choice(list(self.processes.values())).terminate()
        codes = {p.wait(60) for p in self.processes.values()}
        assert codes == {143}, f"exit codes {codes}"
        last = rows_of(self.folder / "run.jsonl")[-1]["step"]
        again = self.processes["replay"] = self.train("replay", f"--replay={self.journal}")
        made = lambda: any(row["step"] > last for row in rows_of(self.folder / "replay.jsonl", 4096))
        self.wait("replay", lambda: made() or again.poll() is not None, 600)
        assert again.poll() is None, f"--replay ended with code {again.returncode}"
        return last


def check(run, last):
    """Compares the run with its replay. Returns a sentence."""
    clocks = "step_ms", "tokens_per_s", "mfu"
    made, again = [[{k: v for k, v in row.items() if k not in clocks} for row in rows_of(run.folder / f"{name}.jsonl")]
                   for name in ("run", "replay")]
    assert [m["step"] for m in made] == list(range(1, last + 1)), "a step is not once in the metrics"
    wrong = [a["step"] for a, b in zip(made, again) if a != b]
    assert not wrong, f"the metrics differ from the replay's in steps {wrong[:5]}"
    history, number = [], run.views[-1][2]["number"]  # the views that made the last state
    for _, _, view in reversed(run.views):
        if view["number"] == number:
            history = [view, *history] if not history or view["start"] < history[0]["start"] else history
            number = view["after"]
    ends = [v["start"] for v in history[1:]] + [last]
    saved = [step for step in range(EVERY, last + 1, EVERY) if (run.folder / f"run/step_{step}").exists()]
    for step in saved:
        for file in ("model.safetensors", "optimizer.safetensors", "state.json"):
            mine, other = [(run.folder / f"{name}/step_{step}" / file).read_bytes() for name in ("run", "replay")]
            assert mine == other, f"{file} of step {step} differs from the replay's"
        samples = ROWS * sum(max(0, min(e, step) - v["start"]) * len(v["members"]) for v, e in zip(history, ends))
        assert json.loads(mine)["samples"] == samples, f"checkpoint {step} is not at sample {samples}"
    back, begin = [], 0  # steps that are made again after the end of all replicas; the first step since then
    for (_, _, before), (_, i, view) in zip(run.views, run.views[1:]):
        lost = max([step for _, step in run.steps[begin:i]], default=0) - view["start"]
        if not members(view, healed=False) & members(before, healed=view["after"] == before["number"]):
            back, begin = [*back, lost], i
        else:
            assert lost <= 0, f"view {view['number']} from step {view['start']} loses {lost} committed steps"
    return (f"{len(saved)} of {last // EVERY} checkpoints and the metrics of {last} steps equal the replay's; "
            f"{len(history)} of {len(run.views)} views made them; {len(back)} times all replicas had ended, and up to "
            f"{max(back, default=0)} steps were made again, else no committed step")


def times(run):
    """Prints the times that the kills cost. A kill that another one follows too soon is left out."""
    steps, views, rows = run.steps, run.views, collections.defaultdict(list)
    after = lambda at, step: next((t for t, s in steps if t >= at and s > step), None)
    alone = lambda begin, end: end and not any(begin < k.time < end for k in run.kills)
    gaps = [(a[0], b[0]) for a, b in zip(steps, steps[1:])]
    rows["a step"] = [b - a for a, b in gaps]
    longest = lambda begin, end: max((b - a for a, b in gaps if begin < b and a < end), default=0)
    for kill in run.kills:
        before = next((v for t, _, v in reversed(views) if t <= kill.time), {"members": []})
        gone = {m for m in members(before) if m[0] == kill.name}
        at, view = next(((t, v) for t, _, v in views if t > kill.time and not gone & members(v, False)), (0, None))
        if kill.kind == "service" and not any(-1 < kill.time - k.time < 3 for k in run.kills if k.name):
            rows["longest step in 1 s after: service"].append(longest(kill.time, kill.time + 1))
        elif gone and view and alone(kill.time, end := after(at, view["start"])):
            lives = members(view, False) & members(before)
            rows[f"next step after: {kill.kind}{'' if lives else ', of all'}"].append(end - kill.time)
    known = set()
    for at, _, view in views:
        for name, incarnation in members(view) - members(view, healed=False) - known:
            begin = max((t for t, n in run.starts if n == name and t < at), default=incarnation * 1e-6)
            if alone(begin, end := after(at, view["start"])):
                rows["start of a replica to its first step"].append(end - begin)
                rows["longest step of the others meanwhile"].append(longest(begin, end))
        known |= members(view)
    print(f"{'milliseconds':44} {'number':>6} {'median':>8} {'longest':>8}")
    for name, all_ in sorted(rows.items()):
        print(f"{name:44} {len(all_):6} {1e3 * statistics.median(all_):8.0f} {1e3 * max(all_):8.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    defaults = {"launch": "", "address": "127.0.0.1:29610", "config": "gpt_tiny", "mesh": "replica2", "kills": 20,
                "services": 0, "stops": 0, "seed": 1, "folder": pathlib.Path(f"/tmp/kill_replicas.{os.getpid()}")}
    for flag, value in defaults.items():
        parser.add_argument(f"--{flag}", type=type(value), default=value)
    o = parser.parse_args()
    if not o.launch and o.services + o.stops:
        parser.error("--services and --stops need --launch")
    o.folder.mkdir(parents=True)
    run = Run(o)
    kinds = ["kill"] * o.kills + ["service"] * o.services + ["stop"] * o.stops
    try:
        for kind in run.dice.sample(kinds, len(kinds)):
            run.kill(kind)
        print(f"{o.config} on {o.mesh}, {len(run.kills)} kills: {check(run, run.finish())}")
    except (AssertionError, subprocess.TimeoutExpired) as e:
        sys.exit(f"{(o.folder / 'log').read_text(errors='replace')[-4000:]}\nFAILED: {e}; {run.kills[-3:]}; {o.folder}")
    finally:
        for process in [*run.processes.values(), *([run.service] if o.launch else [])]:
            process.kill()
    times(run)


if __name__ == "__main__":
    main()
