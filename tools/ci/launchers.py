#!/usr/bin/env python3
"""Runs the gpt trainer under other launchers, and checks losses, failures and remains of a job.

    tools/ci/launchers.py [PART...]     parts: launch mpirun torchrun slurm hosts proxy; all by default

It installs Debian's openmpi-bin, slurm-wlm, munge and iproute2 (as root), and PyTorch's torchrun from PyPI in a virtual
environment (about 5 GB, shared with tools/bench/versus_pytorch.py). A part that lacks a package or root is skipped, and
the last lines say so. As root all of it runs in a PID namespace with a /dev/shm of its own, so that the remains of a
job are found beside other jobs, and in network namespaces: two for the part hosts, whose link is cut and throttled.
The part proxy has a proxy between a rank and the coordination service, which delays and cuts.

Each part asserts: the losses of thread ranks; a rank that is killed, or has another --lr, ends the job, and the exit
code and the last line name it; no process, memfd, shared memory, temporary folder or port is left.
"""
import argparse
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

from slurm_cluster import slurm_cluster

ROOT = pathlib.Path(__file__).resolve().parents[2]
MARK = "LAUNCHERS_MARK"
FLAGS = ("--config gpt_tiny --data synthetic --batch_size 4 --seq_len 16 --lr 0.01 --seed 7 --sample 0 "
         "--eval_every 0 --checkpoint_every 0 --threads 1").split()
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
OTHER_LR = r"\) has --lr 0\.5 and the others have 0\.01; need equal values on all ranks"
# Gives rank 1 another learning rate.
VARY = ["sh", "-c", 'r=${OMPI_COMM_WORLD_RANK:-${SLURM_PROCID:-${RANK:-$JOB_COMPLETION_INDEX}}}; '
        '[ "$r" != 1 ] || set -- "$@" --lr 0.5; exec "$@"', "sh"]

# Root that may make namespaces; the script is then in its own.
root = os.environ.get("LAUNCHERS_INSIDE") == "1"
failures, skipped, folder = [], [], None


class Skip(Exception):
    pass


def check(ok, what, *shown):
    if ok:
        return
    failures.append(what)
    print("FAILED:", what, *(f"\n    {str(s).strip()}" for s in shown), flush=True)


def need(package, program):
    """Installs a Debian package that has the program."""
    if shutil.which(program):
        return
    if not root:
        raise Skip(f"needs Debian's {package}, and root to install it")
    done = subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *package.split()],
                          env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, capture_output=True, text=True)
    if done.returncode or not shutil.which(program):
        raise Skip(f"Debian's {package} cannot be installed: {(done.stderr.strip() or 'no program').splitlines()[-1]}")


def need_root():
    if not root:
        raise Skip("needs root")


class Network:
    """A network namespace; without root, the namespace of this process."""

    def __init__(self, name):
        self.name = name if root else None
        if self.name:
            need("iproute2", "ip")
            subprocess.run(["ip", "netns", "add", self.name], check=True)
            self.ip("link", "set", "lo", "up")
            # Slurm's daemons look for an address that is not of loopback.
            self.ip("link", "add", "own0", "type", "veth", "peer", "name", "own1")
            self.ip("address", "add", "10.77.1.1/24", "dev", "own0")
            for link in ("own0", "own1"):
                self.ip("link", "set", link, "up")

    def ip(self, *arguments):
        subprocess.run(["ip", "-n", self.name, *arguments], check=True)

    def enter(self, command):
        return ["nsenter", f"--net=/run/netns/{self.name}", *command] if self.name else list(command)

    def sockets(self):
        """TCP sockets that a process has, without sockets that the kernel still closes. Only in an own namespace."""
        if not self.name:
            return []
        lines = subprocess.run(self.enter(["ss", "-HtanO"]), capture_output=True, text=True).stdout.splitlines()
        return [f"{state} {own} {peer}" for state, _, _, own, peer, *_ in map(str.split, lines)
                if state in ("LISTEN", "ESTAB", "CLOSE-WAIT", "SYN-SENT")]

    def remove(self):
        if self.name:
            subprocess.run(["ip", "netns", "del", self.name], check=True)


def processes(mark):
    """Processes with the mark in their environment, as {pid: environment}."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            variables = dict(v.split("=", 1) for v in (entry / "environ").read_bytes().decode("utf-8", "replace")
                             .split("\0") if "=" in v)
            if variables.get(MARK) == mark:
                found[int(entry.name)] = variables
    return found


def in_use():
    """Processes, their memfds and the files of jobs, as texts. Exact in an own PID namespace only."""
    found = set()
    for d in ("/dev/shm", folder / "tmp"):
        found |= {f"file {p}" for p in pathlib.Path(d).glob("weft-*")}
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (entry / "stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                continue  # has ended; its parent is away
            found.add(f"process {entry.name} {(entry / 'comm').read_text().strip()}")
            for fd in (entry / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if os.readlink(fd).startswith("/memfd:weft"):
                        found.add(f"memfd {os.readlink(fd)} of process {entry.name}")
    return found


class Job:
    """Commands that run together. They share a mark, and each has its output in files."""

    def __init__(self, name, commands, network, environments=None):
        self.name, self.mark, self.networks = name, uuid.uuid4().hex, []
        self.runs, self.outputs = [], []
        networks = network if isinstance(network, list) else [network] * len(commands)
        self.networks = networks
        self.before = self.now()
        for i, command in enumerate(commands):
            paths = [folder / f"{name}.{i}.{kind}".replace("/", "_").replace(" ", "_") for kind in ("out", "err")]
            environment = {**os.environ, MARK: self.mark, "TMPDIR": str(folder / "tmp"),
                           **((environments or [{}] * len(commands))[i])}
            with open(paths[0], "w") as out, open(paths[1], "w") as error:
                self.runs.append(subprocess.Popen(networks[i].enter(command), cwd=folder, env=environment, stdout=out,
                                                  stderr=error, stdin=subprocess.DEVNULL, start_new_session=True))
            self.outputs.append(paths)

    def errors(self, i=0):
        return self.outputs[i][1].read_text(errors="replace")

    def shown(self):
        return "\n".join(f"[{i}] {line}" for i in range(len(self.runs)) for line in self.errors(i).splitlines()[-12:])

    def last(self, i=0):
        lines = [line for line in self.errors(i).splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def until(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end or all(r.poll() is not None for r in self.runs):
                check(False, f"{self.name}: the awaited event does not come within {seconds} s", self.shown())
                return False
            time.sleep(0.05)
        return True

    def steps(self, metrics, n):
        return self.until(lambda: metrics.exists() and metrics.read_text().count("\n") >= n)

    def rank(self, rank):
        """The pid of the trainer of a rank."""
        for pid, variables in processes(self.mark).items():
            with contextlib.suppress(OSError):
                own = next((variables[v] for v in RANK_VARIABLES if v in variables), None)
                if own == str(rank) and os.readlink(f"/proc/{pid}/exe") == str(TRAIN):
                    return pid
        return None

    def end(self, seconds=60, kept=False):
        """The exit codes, when all have ended; then nothing of the job may be left, except flight records if they are
        `kept`. Then //tools:diagnose must repeat the last line of the launcher."""
        end = time.monotonic() + seconds
        codes = []
        for run in self.runs:
            try:
                codes.append(run.wait(max(0.1, end - time.monotonic())))
            except subprocess.TimeoutExpired:
                check(False, f"{self.name}: still runs after {seconds} s", self.shown())
                os.killpg(run.pid, signal.SIGKILL)
                codes.append(run.wait())
        records = re.search(r"flight records for //tools:diagnose: (.*)", self.errors())
        if kept and records:
            said = subprocess.run([DIAGNOSE, records[1]], capture_output=True, text=True).stdout
            check(said and said.splitlines()[0] in self.last(), f"{self.name}: the diagnosis of its records", said)
            shutil.rmtree(records[1])
        # Slurm's daemons and mpirun's take a moment behind the end.
        for _ in range(100):
            left = self.left()
            if not left:
                break
            time.sleep(0.05)
        check(not left, f"{self.name}: left behind: {left}")
        for pid in processes(self.mark):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return codes

    def now(self):
        if not root:
            return {f"process {pid}" for pid in processes(self.mark)}
        return in_use() | {f"socket {s}" for n in self.networks for s in n.sockets()}

    def left(self):
        return sorted(self.now() - self.before)


def plain(metrics):
    """A metrics file without measured times."""
    text = re.sub(r',?"ranks":\{[^}]*\}', "", metrics.read_text())
    return re.sub(r',?"(step_ms|tokens_per_s|mfu)":[^,}]*', "", text)


def reference(mesh, steps=8):
    """The metrics of thread ranks."""
    path = folder / f"threads-{mesh}-{steps}.jsonl"
    if not path.exists():
        subprocess.run([TRAIN, *FLAGS, "--steps", str(steps), "--mesh", mesh, "--ranks", "threads", "--metrics", path],
                       check=True, stdout=subprocess.DEVNULL, cwd=folder)
    return plain(path)


def trainer(metrics, steps=8, mesh="dp2", more=()):
    return [str(TRAIN), *FLAGS, "--steps", str(steps), "--mesh", mesh, "--metrics", str(metrics), *more]


def same_losses(name, metrics, mesh="dp2"):
    ok = metrics.exists() and plain(metrics) == reference(mesh)
    check(ok, f"{name}: losses differ from the losses of threads", metrics.exists() and plain(metrics), reference(mesh))


def say(text):
    print(text, flush=True)


def three_runs(name, network, launch, kill, lr):
    """A run to its end, one whose rank 1 is killed and one with another --lr. `launch` makes a command of a command;
    `kill` and `lr` are the exit code and a text of the last line."""
    def metrics(kind):
        return folder / f"{name}-{kind}.jsonl"

    job = Job(f"{name} run", [launch(trainer(metrics("run")))], network)
    check(job.end() == [0], f"{name}: exit code", job.shown())
    same_losses(name, metrics("run"))
    output = job.outputs[0][0].read_text()
    check(len(re.findall(r"2 ranks as dp2", output)) == 1, f"{name}: not one rank prints the run", output)

    job = Job(f"{name} kill", [launch(trainer(metrics("kill"), 10**6))], network)
    if job.steps(metrics("kill"), 3):
        pid = job.rank(1)
        os.kill(pid, signal.SIGKILL)
        code = job.end(20, kept=True)[0]
        check(code == kill[0], f"{name}: a killed rank: exit code {code}; need {kill[0]}", job.shown())
        want = kill[1].replace("PID", str(pid))
        check(re.search(want, kill[2](job)), f"{name}: a killed rank: no '{want}' at the end", job.shown())
    else:
        job.end(1)

    job = Job(f"{name} lr", [launch(VARY + trainer(metrics("lr")))], network)
    code = job.end()[0]
    check(code == lr[0], f"{name}: another --lr: exit code {code}; need {lr[0]}", job.shown())
    check(re.search(lr[1], lr[2](job)), f"{name}: another --lr: no '{lr[1]}' at the end", job.shown())


def last_line(job):
    return job.last()


def all_lines(job):
    return job.errors()


def part_launch():
    """Our own launcher, and the trainer that starts the processes itself."""
    network = Network("launch")
    dead = (137, r"launch: dead: rank 1 \(host .*, pid PID\) died", last_line)
    three_runs("launch", network, lambda c: [str(LAUNCH), "--nproc", "2", *c], dead, (1, OTHER_LR, last_line))
    network.remove()


def part_mpirun():
    need("openmpi-bin", "mpirun")
    network = Network("mpirun")
    three_runs("mpirun", network, lambda c: ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", *c],
               (137, r"(?s)rank 1 \(pid PID\) has died.*process rank 1 .* exited on signal 9", all_lines),
               (1, OTHER_LR, all_lines))
    network.remove()


def part_torchrun():
    python = pathlib.Path(os.path.expanduser("~/.cache/weft/bench-venv/bin/python"))
    if not (python.parent / "torchrun").exists():
        say("torchrun: installing PyTorch (some minutes, about 5 GB)")
        for command in ([sys.executable, "-m", "venv", python.parents[1]],
                        [python, "-m", "pip", "install", "-q", "-r", ROOT / "tools/bench/requirements.txt"]):
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise Skip(f"PyTorch cannot be installed: {(done.stderr.strip() or '?').splitlines()[-1]}")
    network = Network("torchrun")
    three_runs("torchrun", network,
               lambda c: [python.parent / "torchrun", "--no-python", "--nproc_per_node", "2", *c],
               (1, r"exitcode *: -9 \(pid: PID\)", all_lines), (1, OTHER_LR, all_lines))
    example([ROOT / "tools/launch/examples/torchrun.sh"], folder / "torchrun_sh.jsonl", network,
            {"PATH": f"{python.parent}:{os.environ['PATH']}"})
    network.remove()


def part_slurm():
    network = Network("slurm")
    need_root()
    need("munge", "munged")
    need("slurmctld slurmd slurm-client", "slurmctld")
    folder.chmod(0o755)
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(slurm_cluster(folder / "slurm", network.enter))
        except TimeoutError as e:
            check(False, "slurm: the node does not become idle", e)
            raise Skip("Slurm does not start") from e
        three_runs("slurm", network, lambda c: ["srun", "-n", "2", "--kill-on-bad-exit=0", *c],
                   (137, r"(?s)rank 1 \(pid PID\) has died.*task 1: Killed|"
                    r"task 1: Killed.*rank 1 \(pid PID\) has died", all_lines),
                   (1, OTHER_LR, all_lines))
        # A launcher in each task would start two jobs.
        job = Job("slurm launch", [["srun", "-n", "2", LAUNCH, "--nproc", "2", *trainer(folder / "nested.jsonl")]],
                  network)
        check(job.end() == [2] and "Slurm has started 2 processes of launch" in job.errors(),
              "slurm: a launcher in each task", job.shown())

        metrics = folder / "sbatch.jsonl"
        example(["sbatch", "--wait", "--nodes=1", "--ntasks-per-node=2", "--export=ALL",
                 ROOT / "tools/launch/examples/train.sbatch"], metrics, network, {"RUN": str(folder / "sbatch")})
    network.remove()


def example(command, metrics, network, variables):
    """An example of tools/launch/examples trains, with flags behind its own."""
    more = trainer(metrics)[1:]
    job = Job(f"example {metrics.stem}", [[*map(str, command), *more]], network,
              [{"PROGRAM": str(TRAIN), "DIAGNOSE": str(DIAGNOSE), **variables}])
    code = job.end()
    logs = [f.read_text() for f in folder.glob("weft-*.txt")]
    check(code == [0], f"example {metrics.stem}: exit code {code}", job.shown(), *logs)
    same_losses(f"example {metrics.stem}", metrics)


@contextlib.contextmanager
def two_hosts():
    """Two network namespaces, joined by veth "wire". Each also has an interface that leads nowhere, with one address on
    both, as the bridges of containers have."""
    need_root()
    a, b = Network("a"), Network("b")
    a.ip("link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", b.name)
    for i, network in enumerate((a, b)):
        network.ip("address", "add", f"10.77.0.{i + 1}/24", "dev", "wire")
        network.ip("link", "set", "wire", "up")
    yield a, b
    a.remove()
    b.remove()


def pods(token="secret", master="10.77.0.1"):
    """The variables of the two pods of a Kubernetes job."""
    return [{"JOB_COMPLETION_INDEX": str(i), "WORLD_SIZE": "2", "MASTER_ADDR": master, "JOB_TOKEN": token}
            for i in range(2)]


def nodes():
    """The variables of four processes on two hosts, as torchrun sets them."""
    return [{"RANK": str(r), "WORLD_SIZE": "4", "LOCAL_RANK": str(r % 2), "LOCAL_WORLD_SIZE": "2",
             "MASTER_ADDR": "10.77.0.1", "MASTER_PORT": "29511", "JOB_TOKEN": "secret"} for r in range(4)]


def part_hosts():
    """Two hosts that are network namespaces. Nothing starts the processes but this script."""
    with two_hosts() as (a, b):
        def metrics(kind):
            return folder / f"hosts-{kind}.jsonl"

        def start(kind, steps=8, mesh="dp2", environments=None, more=(), vary=()):
            environments = environments or pods()
            networks = [a, b] if len(environments) == 2 else [a, a, b, b]
            return Job(f"hosts {kind}", [[*vary, *trainer(metrics(kind), steps, mesh, more)] for _ in environments],
                       networks, environments)

        for kind, mesh, environments in (("pods", "dp2", pods()), ("two ranks a pod", "dp2,tp2", pods()),
                                         ("four processes", "dp2,tp2", nodes())):
            job = start(kind, mesh=mesh, environments=environments)
            codes = job.end()
            check(not any(codes), f"hosts {kind}: exit codes {codes}", job.shown())
            same_losses(f"hosts {kind}", metrics(kind), mesh)
            check(not any(p[0].read_text() for p in job.outputs[1:]), f"hosts {kind}: not only rank 0 prints")

        for host in (a, b):
            subprocess.run(host.enter("tc qdisc add dev wire root tbf rate 20mbit burst 32kb latency 400ms".split()),
                           check=True)
        job = start("throttled")
        codes = job.end(120)
        check(not any(codes), f"hosts throttled: exit codes {codes}", job.shown())
        same_losses("hosts throttled", metrics("throttled"))
        for host in (a, b):
            subprocess.run(host.enter("tc qdisc del dev wire root".split()), check=True)

        # Faults: all end within seconds, and the last line of each names the rank.
        def fault(kind, wanted, act=None, codes=(1, 1), seconds=20, **options):
            job = start(kind, 10**6, **options)
            if act and job.steps(metrics(kind), 3):
                pid = act(job)
                wanted = [w.replace("PID", str(pid)) for w in wanted]
            got = job.end(seconds)
            check(got == list(codes), f"hosts {kind}: exit codes {got}; need {list(codes)}", job.shown())
            for i, want in enumerate(wanted):
                check(re.search(want, job.last(i)), f"hosts {kind}: no '{want}' in the last line of process {i}",
                      job.shown())

        def kill(job, rank=1, number=signal.SIGKILL):
            pid = job.rank(rank)
            os.kill(pid, number)
            return pid

        def cut(job):
            b.ip("link", "set", "wire", "down")
            return ""

        fault("killed", [r"rank 1 \(.*pid PID.*\) (has )?died"], kill, (1, -9))
        fault("service killed", ["", r"rank 0 \(.*pid PID.*\) (has )?died"], lambda job: kill(job, 0), (-9, 1))
        fault("link down", ["rank 1", "rank 0"], cut)
        b.ip("link", "set", "wire", "up")
        fault("lr", [OTHER_LR, OTHER_LR], vary=VARY)
        fault("no token", ["JOB_TOKEN is not set"] * 2, environments=[{k: v for k, v in e.items() if k != "JOB_TOKEN"}
                                                                      for e in pods()])
        fault("other token", ["rank 1", "token"], environments=[pods()[0], pods("other")[1]], more=["--timeout", "5"])
        fault("batch", ["--batch_size", "--batch_size"], vary=[*VARY[:2], VARY[2].replace("--lr 0.5", "--batch_size 8"),
                                                                VARY[3]])

        for i, host in enumerate((a, b)):
            for link in ("wire", "own0"):
                host.ip("-4", "address", "flush", "dev", link)
            host.ip("address", "add", f"fd77::{i + 1}/64", "dev", "wire", "nodad")
        job = start("IPv6 alone", environments=pods(master="fd77::1"))
        codes = job.end()
        check(not any(codes), f"hosts IPv6 alone: exit codes {codes}", job.shown())
        same_losses("hosts IPv6 alone", metrics("IPv6 alone"))


def part_proxy():
    """The connection of rank 1 to the coordination service is slow, is cut for a moment, and stays cut."""
    network = Network("proxy")
    for kind, milliseconds, number in (("delayed", 50, None), ("cut once", 0, signal.SIGUSR1),
                                       ("cut", 0, signal.SIGUSR2)):
        between = subprocess.Popen(network.enter([ROOT / "tools/ci/fault_proxy.py", "29601", "29600",
                                                  str(milliseconds)]), stdout=subprocess.PIPE, text=True)
        between.stdout.readline()
        metrics = folder / f"proxy-{kind}.jsonl"
        ports = ("29600", "29601")
        environments = [{"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[r]} for r in range(2)]
        job = Job(f"proxy {kind}", [trainer(metrics, 10**6 if number else 8)] * 2, network, environments)
        if number and job.steps(metrics, 3):
            between.send_signal(number)
        if number == signal.SIGUSR1:  # the job goes on
            count = metrics.read_text().count("\n")
            time.sleep(3)
            job.steps(metrics, count + 10)
            for rank in range(2):
                os.kill(job.rank(rank), signal.SIGTERM)
        codes = job.end()
        if number == signal.SIGUSR2:
            check(codes == [1, 1], f"proxy {kind}: exit codes {codes}", job.shown())
            check(re.search(r"rank 1 \(", job.last(0)) and "rank " in job.last(1),
                  f"proxy {kind}: the last line of rank 0 does not name rank 1", job.shown())
        else:
            want = [143, 143] if number else [0, 0]
            check(codes == want, f"proxy {kind}: exit codes {codes}; need {want}", job.shown())
        if not number:
            same_losses(f"proxy {kind}", metrics)
        between.kill()
        between.wait()
    network.remove()


def main():
    global TRAIN, LAUNCH, DIAGNOSE, folder
    parts = {name[5:]: value for name, value in globals().items() if name.startswith("part_")}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(parts)}; all by default")
    parser.add_argument("--keep", action="store_true", help="keep the outputs")
    args = parser.parse_args()
    for part in args.parts:
        if part not in parts:
            parser.error(f"no part {part}; there are {', '.join(parts)}")
    programs = ("//models/gpt:train", "//tools:launch", "//tools:diagnose")
    if "LAUNCHERS_INSIDE" not in os.environ:
        subprocess.run([ROOT / "bazelw", "build", *programs], check=True)
        binaries = subprocess.run([ROOT / "bazelw", "info", "bazel-bin"], check=True, capture_output=True,
                                  text=True).stdout.strip()
        os.environ["LAUNCHERS_BINARIES"] = binaries
        apart = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.environ["LAUNCHERS_INSIDE"] = "0"
        if os.geteuid() == 0 and subprocess.run([*apart, "true"], stderr=subprocess.DEVNULL).returncode == 0:
            os.environ["LAUNCHERS_INSIDE"] = "1"
            script = ("mkdir -p /run/netns && mount -t tmpfs none /run/netns && mount -t tmpfs none /dev/shm && "
                      'exec "$@"')
            os.execvp(apart[0], [*apart, "sh", "-c", script, "sh", sys.executable, *sys.argv])
        os.execv(sys.executable, [sys.executable, *sys.argv])
    TRAIN, LAUNCH, DIAGNOSE = (pathlib.Path(os.environ["LAUNCHERS_BINARIES"], p[2:].replace(":", "/")).resolve()
                               for p in programs)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the first process of a PID namespace has no default for it
    folder = pathlib.Path(tempfile.mkdtemp(prefix="launchers-"))
    (folder / "tmp").mkdir()
    for name in args.parts or parts:
        begin = time.monotonic()
        try:
            parts[name]()
            say(f"{name}: done in {time.monotonic() - begin:.0f} s")
        except Skip as why:
            skipped.append(name)
            say(f"{name}: skipped: {why}")
    if args.keep:
        say(f"outputs: {folder}")
    else:
        shutil.rmtree(folder)
    say(f"{len(args.parts or parts) - len(skipped)} parts run, {len(skipped)} skipped"
        f"{': ' + ', '.join(skipped) if skipped else ''}; {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
