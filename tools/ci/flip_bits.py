#!/usr/bin/env python3
"""flip_bits.py TRAIN: flips bits in the memory of one of two ranks of a running job, and counts the flips that
--check_state and --check_compute find.

TRAIN is //models/gpt:train. The job is gpt_tiny on dp2 as two processes. A flip comes from outside, by
process_vm_writev, in a parameter, in a moment, or in any memory with floats that the step writes: gradients, operands
of collectives, activations. Each checkpoint is compared with an undisturbed run. So a flip has no effect, is found, or
is missed; the last means wrong states that are equal on both ranks. Needs the right to write to the memory of children
(root, or kernel.yama.ptrace_scope 0 or 1)."""
import argparse
import array
import collections
import contextlib
import ctypes
import hashlib
import json
import os
import pathlib
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import time

EVERY = 8    # steps between checkpoints; one flip in each interval
STEP = 0.05  # about the seconds of a step
libc = ctypes.CDLL(None, use_errno=True)


class IoVec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]


def flip(pid, address, bit):
    """Flips a bit of a byte of a process."""
    byte = ctypes.c_ubyte()
    own, other = IoVec(ctypes.addressof(byte), 1), IoVec(address, 1)
    if libc.process_vm_readv(pid, ctypes.byref(own), 1, ctypes.byref(other), 1, 0) != 1:
        raise OSError(ctypes.get_errno(), "process_vm_readv")
    byte.value ^= 1 << bit
    if libc.process_vm_writev(pid, ctypes.byref(own), 1, ctypes.byref(other), 1, 0) != 1:
        raise OSError(ctypes.get_errno(), "process_vm_writev")


def memory(pid, rank):
    """The memory of a rank that holds tensors: {address: bytes}, from its segment and its anonymous mappings."""
    found = {}
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        segment = next((os.stat(fd.path).st_size for fd in os.scandir(f"/proc/{pid}/fd")
                        if f"memfd:weft-rank-{rank} " in os.readlink(fd.path) + " "), 0)
        for line in maps:
            place, rights, _, _, inode, *name = line.split()
            begin, end = (int(x, 16) for x in place.split("-"))
            own = bool(name) and name[0] == f"/memfd:weft-rank-{rank}"
            if rights[:2] != "rw" or not (own or inode == "0" and (not name or name[0] == "[heap]")):
                continue
            size = min(end - begin, segment) if own else end - begin
            if size < 1 << 16 or size > 1 << 30:
                continue
            with contextlib.suppress(OSError):
                found[begin] = os.pread(mem.fileno(), size, begin)
    return found


def tensors(path):
    """{name: bytes} of a safetensors file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    return {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]]
            for name, t in header.items() if name != "__metadata__"}


def is_floats(block):
    """Whether bytes look like values of f32 of a model."""
    usual = sum(1e-12 < abs(x) < 1e3 for x in array.array("f", block))
    return usual > len(block) // 4 * 0.9


class Job:
    def __init__(self, options, folder, checks):
        self.folder, self.out, self.metrics = folder / "steps", folder / "out", folder / "metrics.jsonl"
        self.folder.mkdir(parents=True, exist_ok=True)
        command = [options.train, "--config=gpt_tiny", "--data=synthetic", "--mesh=dp2", "--batch_size=4",
                   "--seq_len=32", f"--steps={options.steps}", f"--checkpoint_every={EVERY}", "--keep=2",
                   "--eval_every=0", "--sample=0", "--resume",
                   f"--checkpoint_dir={self.folder}", f"--metrics={self.metrics}", "--check_state_errors=" +
                   ("continue" if checks else "stop"), *checks]
        self.notify = libc.inotify_init1(os.O_CLOEXEC)
        libc.inotify_add_watch(self.notify, os.fsencode(self.folder), 0x80)  # IN_MOVED_TO
        with open(self.out, "a") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out)
        self.pids = {}

    def find_ranks(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for pid in children:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            self.pids.update({int(e[5:]): int(pid) for e in environment if e.startswith(b"RANK=")})

    def signal(self, number):
        for pid in self.pids.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def step(self):
        """The number of steps whose metrics are written."""
        return self.metrics.read_bytes().count(b"\n") if self.metrics.exists() else 0

    def next_checkpoint(self):
        """Stops the ranks when the next checkpoint appears. Returns its step, or None if the job has ended."""
        while True:
            if self.notify in select.select([self.notify], [], [], 0.2)[0]:
                events = os.read(self.notify, 4096)
                steps = re.findall(rb"step_(\d+)\0", events)
                if not steps:
                    continue
                if not self.pids:
                    self.find_ranks()
                self.signal(signal.SIGSTOP)
                return int(steps[-1])
            if self.process.poll() is not None:
                return None

    def end(self):
        self.signal(signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        os.close(self.notify)

    def path(self, step):
        return self.folder / f"step_{step}"

    def hash(self, step):
        return hashlib.sha1(b"".join((self.path(step) / f"{part}.safetensors").read_bytes()
                                     for part in ("model", "optimizer"))).hexdigest()


def undisturbed(options, folder):
    """The hashes of all checkpoints of a run without flips."""
    job, hashes = Job(options, folder, []), {}
    while (step := job.next_checkpoint()) is not None:
        hashes[step] = job.hash(step)
        job.signal(signal.SIGCONT)
    if job.process.returncode != 0:
        sys.exit(f"the run without flips failed:\n{job.out.read_text()}")
    job.end()
    return hashes


def choose(job, rank, kind, step, dice):
    """Chooses a place in the memory of a rank, whose job is stopped at the checkpoint of `step`. Returns its name and
    address, after a part of the next step; the job is stopped again. None: no place was found."""
    pid, before = job.pids[rank], memory(job.pids[rank], rank)
    name, value = kind, b""
    if kind != "any":
        named = tensors(job.path(step) / ("model.safetensors" if kind == "parameter" else "optimizer.safetensors"))
        name = dice.choice(sorted(n for n, v in named.items() if len(v) >= 256 and v[:64].count(0) < 16))
        value = named[name]
    candidates = []  # (address, bytes); the launcher ends a job that is stopped for 2 s, so no memory is read twice
    for begin, data in before.items() if value else ():
        at = data.find(value[:64])
        while at >= 0:
            if data[at:at + len(value)] == value:
                candidates.append((begin + at, value))
            at = data.find(value[:64], at + 4)
    regions = [] if value else list(before.items())
    for begin, data in dice.choices(regions, [len(data) for _, data in regions], k=4000) if regions else ():
        at = dice.randrange(len(data) // 256) * 256
        if is_floats(data[at:at + 256]):
            candidates.append((begin + at, data[at:at + 256]))
    lines = job.step()
    job.signal(signal.SIGCONT)
    while job.step() < lines + 1 and job.process.poll() is None:
        time.sleep(0.0005)
    time.sleep(dice.random() * STEP)
    job.signal(signal.SIGSTOP)
    # A step has changed the cell. It has not changed the copy that a check keeps.
    with contextlib.suppress(OSError), open(f"/proc/{pid}/mem", "rb", buffering=0) as mem:
        for address, data in dice.sample(candidates, len(candidates)):
            with contextlib.suppress(OSError):
                if os.pread(mem.fileno(), len(data), address) not in (data, b""):
                    return name, address + dice.randrange(len(data))
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("train")
    parser.add_argument("--flips", type=int, default=200)
    parser.add_argument("--check_state", type=int, default=4)
    parser.add_argument("--check_compute", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/flip_bits"))
    options = parser.parse_args()
    options.steps = EVERY * (options.flips * 11 // 10 + 20)  # some intervals have no flip
    shutil.rmtree(options.folder, ignore_errors=True)
    right = undisturbed(options, options.folder / "undisturbed")
    checks = [f"--check_state={options.check_state}", f"--check_compute={options.check_compute}"]
    dice, counts, failures = random.Random(options.seed), collections.Counter(), []
    job, last = Job(options, options.folder / "flipped", checks), None
    made, printed = 0, 0

    def outcome(step):
        """Prints and counts the outcome of the last flip at the checkpoint of `step`; None: the job has ended."""
        nonlocal printed
        kind, name, rank, at = last
        text = job.out.read_text()
        new, printed = text[printed:], len(text)
        found = re.search(r"step (\d+): (rank \d.*? has (?:computed )?wrong bits in [^;\n]*)", new)
        if not found:
            result = "no effect"
        elif " or rank " in found[2]:
            result = "found, both ranks named"
        elif int(found[1]) <= at + options.check_state and (found[2].startswith(f"rank {rank} ") or kind == "any"):
            # A receiver may read the memory of an operand after its sender has summed it.
            result = "found" if found[2].startswith(f"rank {rank} ") else "found, the receiver named"
        else:
            result = "WRONG RANK, OR LATE"
        if "and nothing was changed" in new:
            result = "the run ended: not finite"
        elif step is None:
            result = f"{result}, the run ended" if found else "THE RUN ENDED"
        elif job.hash(step) != right[step]:
            result = "WRONG STATE AFTER IT WAS FOUND" if found else "missed"
        counts[kind, result] += 1
        print(f"{made}: {kind} '{name}' of rank {rank} in step {at}: {result}", *(found.groups() if found else ()),
              flush=True)
        if result.startswith(("WRONG", "THE RUN")):
            failures.append(new)
        return result

    while made < options.flips:
        step = job.next_checkpoint()
        result = outcome(step) if last else None
        last = None
        if step is None and job.process.returncode == 0:
            break
        if step is None or result in ("missed", "WRONG STATE AFTER IT WAS FOUND"):
            job.end()  # goes on from the last checkpoint with right bits
            if step is not None:
                shutil.rmtree(job.path(step))
            job = Job(options, options.folder / "flipped", checks)
            continue
        rank, kind = dice.randrange(2), dice.choice(["parameter", "moment", "any"])
        place = choose(job, rank, kind, step, dice)
        if place and job.process.poll() is None:
            made += 1
            last = kind, place[0], rank, job.step() + 1
            with contextlib.suppress(ProcessLookupError):  # the job has ended
                flip(job.pids[rank], place[1], dice.randrange(8))
        job.signal(signal.SIGCONT)
    if last:
        outcome(job.next_checkpoint())
    job.end()
    for (kind, result), n in sorted(counts.items()):
        print(f"{kind:10} {result:30} {n}")
    print(*failures, sep="\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
