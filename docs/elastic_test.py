#!/usr/bin/env python3
"""The programs of docs/elastic.md: each cpp block of the page is in models/examples/elastic.cc or diloco.cc, with any
indentation.
Two replicas of the program train. The test kills one of them, the other one continues, and the killed one comes back.
One process makes their run again from the journal, with equal checkpoints."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

LAUNCH, DIAGNOSE = (os.path.abspath(p) for p in ("tools/launch", "tools/diagnose"))
FILES = ("model.safetensors", "optimizer.safetensors", "state.json")


def lines(text):
    return [line.strip() for line in text.strip().split("\n")]


class ElasticTest(unittest.TestCase):
    program = os.path.abspath("models/examples/elastic")

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
        self.running = []

    def tearDown(self):
        for process in self.running:
            process.kill()
            process.wait()

    def start(self, name, *command, **variables):
        """Starts a program whose output goes to the file NAME.log."""
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(command, env={**os.environ, **variables}, stdout=log, stderr=subprocess.STDOUT)
        self.running.append(process)
        return process

    def said(self, *names):
        return "".join((self.folder / f"{n}.log").read_text() for n in names if (self.folder / f"{n}.log").exists())

    def wait_for(self, what, state):
        """Waits until `state()` is true, and returns it."""
        for _ in range(60000):
            if got := state():
                return got
            time.sleep(0.002)
        self.fail(f"no {what}\n{self.said('service', 'a', 'b')}")

    def newest(self):
        steps = [re.fullmatch(r"step_(\d+)", path.name) for path in self.folder.glob("run/step_*")]
        return max((int(step[1]) for step in steps if step), default=-1)

    def kill_one(self, replica):
        """Kills a process of a replica: a rank, if the replica has started its ranks."""
        with open(f"/proc/{replica.pid}/task/{replica.pid}/children") as file:
            ranks = file.read().split()
        os.kill(int(ranks[0]) if ranks else replica.pid, signal.SIGKILL)
        self.assertNotEqual(replica.wait(), 0)

    def test_blocks(self):
        programs = [lines(pathlib.Path(f"models/examples/{name}.cc").read_text()) for name in ("elastic", "diloco")]
        text = pathlib.Path("docs/elastic.md").read_text()
        blocks = re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S)
        self.assertGreaterEqual(len(blocks), 2)
        for block in map(lines, blocks):
            self.assertTrue(any(program[i:i + len(block)] == block for program in programs for i in range(len(program))),
                            "no program has this block of the page:\n" + "\n".join(block))

    def run_replicas(self, mesh):
        journal = str(self.folder / "journal")
        self.start("service", LAUNCH, "--serve", "127.0.0.1:0", "--journal", journal, "--replicas", "2")
        address = self.wait_for("address", lambda: re.search(r"replicas at (\S+),", self.said("service")))[1]

        def replica(name):
            return self.start(name, self.program, mesh, "1000000000", str(self.folder / "run"), REPLICA=name,
                              REPLICAS=address, JOB_FLIGHT=str(self.folder / "flight" / name))

        a, b = replica("a"), replica("b")
        self.wait_for("view of both", lambda: "2 of 2 replicas" in self.said("a", "b"))
        self.wait_for("checkpoint", lambda: self.newest() > 0)
        before = len(self.said("a"))
        if mesh == "replica2":
            self.check_diagnosis(b)
        self.kill_one(b)
        self.wait_for("view of one", lambda: "1 of 2 replicas: a\n" in self.said("a")[before:])
        alone = self.newest()
        self.wait_for("steps of one", lambda: self.newest() > alone)
        b = replica("b")
        view = self.wait_for("second view of both", lambda: re.search(
            r"from step (\d+): 2 of 2 replicas: a, b\n", self.said("a")[before:]))
        self.wait_for("steps of both", lambda: self.newest() > int(view[1]) + 100)
        self.assertIn(f"replica b has the state of step {view[1]} from the others\n", self.said("b"))
        b.terminate()
        for process in (a, b):
            self.assertEqual(process.wait(), 128 + signal.SIGTERM, self.said("a", "b"))
        last = self.newest()
        subprocess.run([self.program, mesh, str(last), str(self.folder / "again"), journal], check=True)
        self.compare(last)

    def compare(self, step):
        for file in FILES:
            run, again = ((self.folder / f / f"step_{step}" / file).read_bytes() for f in ("run", "again"))
            self.assertTrue(run == again, file)

    def check_diagnosis(self, b):
        """The records name a stopped replica. The other one waits for it, and then continues without it."""
        b.send_signal(signal.SIGSTOP)
        records = [str(self.folder / "flight" / name) for name in "ab"]

        def names_it():
            said = subprocess.run([DIAGNOSE, *records], stdout=subprocess.PIPE, text=True, check=True).stdout
            waits = "replica a waits for replica b: "
            gone = r"no replica .*\nreplica b is not in view \d+, and its last view is \d+: "
            return re.match(rf"({waits}|{gone})stopped: rank 0 \(host \S+, pid {b.pid}\)", said)

        self.wait_for("diagnosis of replica b", names_it)

    def test_a_replica_of_one_process(self):
        self.run_replicas("replica2")

    def test_a_replica_of_two_processes(self):
        self.run_replicas("replica2,fsdp2")

    def test_one_job(self):
        for folder, steps in (("run", "150"), ("again", "50"), ("again", "150")):
            subprocess.run([self.program, "replica2", steps, str(self.folder / folder)], check=True)
        self.compare(150)
        done = subprocess.run([self.program, "dp1", "150", "x"], env={**os.environ, "REPLICA": "a", "REPLICAS": "host:1"},
                              stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("so this program is one of several replicas, and the mesh is dp1; need a mesh with a dimension",
                      done.stderr)


class DilocoTest(ElasticTest):
    program = os.path.abspath("models/examples/diloco")

    def test_one_job(self):
        done = subprocess.run([self.program, "replica2", "100", "x"], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("diloco: REPLICAS is not set; need the address of the service of replicas, or a journal\n",
                      done.stderr)


if __name__ == "__main__":
    unittest.main()
