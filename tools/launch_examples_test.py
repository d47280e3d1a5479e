#!/usr/bin/env python3
"""The examples of tools/launch/examples, as far as they can be checked without a cluster: the scripts run with fakes of
srun, torchrun and the trainer; the JobSet has the variables that the code reads, and numbers that fit together."""
import os
import pathlib
import re
import stat
import subprocess
import tempfile
import unittest

EXAMPLES = pathlib.Path("tools/launch/examples")
CODE = "".join(pathlib.Path(p).read_text() for p in
               ("distributed/control/identity.cc", "distributed/control/group/replica_identity.cc",
                "distributed/launch/job.cc", "framework/dispatch/rank/flight.h"))


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))

    def program(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def run_script(self, script, code, trainer="", **variables):
        """The output of a script whose trainer ends with a code, after the lines `trainer`. The fakes run it once,
        without their own flags."""
        start = 'while [ "$1" != "$PROGRAM" ]; do shift; done; exec "$@"\n'
        for name in ("srun", "torchrun"):
            self.program(name, start)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                       "PROGRAM": self.program("train", f'echo "train $*"; env | grep ^JOB_; {trainer}\nexit {code}\n'),
                       "LAUNCH": self.program("launch", 'echo "launch $*"; exec sleep 1000\n'),
                       "DIAGNOSE": self.program("diagnose", 'echo "diagnosis of $*"\n'), **variables}
        done = subprocess.run(["bash", str(EXAMPLES / script), "--steps", "3"], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def test_sbatch(self):
        run = self.folder / "run"
        for code in (0, 7):
            said = self.run_script("train.sbatch", code, RUN=str(run), SLURM_JOB_ID="5")
            self.assertRegex(said, r"train --mesh dp2,tp2 .*--resume --steps 3")
            self.assertIn(f"JOB_TOKEN_FILE={run}/token", said)
            self.assertEqual(f"diagnosis of {run}/flight" in said, code != 0, said)
        self.assertEqual(stat.S_IMODE((run / "token").stat().st_mode), 0o600)
        self.assertGreater(len((run / "token").read_text().strip()), 20)
        text = (EXAMPLES / "train.sbatch").read_text()
        nodes, tasks = (int(re.search(rf"#SBATCH --{f}=(\d+)", text)[1]) for f in ("nodes", "ntasks-per-node"))
        self.assertEqual(nodes * tasks, 4, "processes, of a mesh dp2,tp2")

    def test_torchrun(self):
        flight = str(self.folder / "flight")
        for code in (0, 1):
            said = self.run_script("torchrun.sh", code, JOB_FLIGHT=flight)
            self.assertIn("train --mesh dp2 --steps 3", said)
            self.assertEqual(f"diagnosis of {flight}" in said, code != 0, said)

    def test_replicas_sbatch(self):
        run = self.folder / "run"
        variables = {"RUN": str(run), "SLURM_JOB_ID": "5"}
        said = self.run_script("replicas.sbatch", 0, 'echo "replica $REPLICA of $REPLICAS"', **variables)
        address = re.search(r"launch --serve (\S+:29005) .*--replicas 2 --token_file " + f"{run}/token", said)[1]
        for name in "ab":
            self.assertEqual(said.count(f"replica {name} of {address}"), 1, said)
            self.assertIn(f"JOB_FLIGHT={run}/flight/{name}", said)
        self.assertEqual(stat.S_IMODE((run / "token").stat().st_mode), 0o600)
        # A replica that fails is started again, and the job ends well if one replica does.
        once = f'echo "replica $REPLICA"; [ $REPLICA = b ] && mkdir {run}/first && exit 137'
        said = self.run_script("replicas.sbatch", 0, once, **variables)
        self.assertEqual([said.count(f"replica {name}\n") for name in "ab"], [1, 2], said)
        for name in "ab":
            (run / "flight" / name).mkdir(parents=True)
        said = self.run_script("replicas.sbatch", 1, 'echo "replica $REPLICA"', **variables)
        self.assertEqual([said.count(f"replica {name}\n") for name in "ab"], [4, 4], said)
        self.assertIn(f"diagnosis of {run}/flight/a {run}/flight/b", said)
        text = (EXAMPLES / "replicas.sbatch").read_text()
        tasks = re.search(r"--nodes=1 --ntasks=(\d+)", text)[1]
        self.assertEqual(tasks, "2", "processes, of a replica of replica2,fsdp2")

    def test_replica_torchrun(self):
        variables = {"REPLICA": "a", "REPLICAS": "host0:29600", "RUN": str(self.folder / "run")}
        (self.folder / "run/flight/a").mkdir(parents=True)
        for code in (0, 1):
            said = self.run_script("replica_torchrun.sh", code, **variables)
            self.assertRegex(said, r"train --mesh replica2,fsdp2 --checkpoint_dir \S*/run --resume --steps 3")
            self.assertIn(f"JOB_FLIGHT={self.folder}/run/flight/a", said)
            self.assertEqual(f"diagnosis of {self.folder}/run/flight/a" in said, code != 0, said)

    def test_replicas_of_jobsets(self):
        text = (EXAMPLES / "replicas.yaml").read_text().replace("NAME", "b")
        try:
            import yaml
            self.assertEqual([d["kind"] for d in yaml.safe_load_all(text)], ["Service", "Job", "JobSet"])
        except ImportError:
            pass  # Debian's python3-yaml is not one of the build's packages
        self.assertNotIn("\t", text)
        service, job, jobset = text.split("---\n")
        names = re.findall(r"- name: ([A-Z_]+)\b", jobset)
        self.assertEqual(names, ["REPLICA", "REPLICAS", "REPLICAS_TOKEN", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                 "JOB_TOKEN", "JOB_FLIGHT"])
        for name in names:
            self.assertIn(f'"{name}"', CODE)
        numbers = [re.search(pattern, jobset)[1] for pattern in
                   (r"completions: (\d+)", r"parallelism: (\d+)", r'WORLD_SIZE.*\n\s+value: "(\d+)"')]
        self.assertEqual(numbers, ["2", "2", "2"], "processes, of a replica of replica2,fsdp2")
        self.assertRegex(jobset, r"MASTER_ADDR.*\n\s+value: weft-b-train-0-0.weft-b\n")
        # The address of the service is the name and the port of the Service of the Job's pod.
        name = re.search(r"metadata:\n  name: (\S+)", job)[1]
        port = re.search(r'"--serve", "0.0.0.0:(\d+)"', job)[1]
        self.assertIn(f"value: {name}:{port}\n", jobset)
        self.assertIn(f"metadata:\n  name: {name}\n", service)
        self.assertIn(f"batch.kubernetes.io/job-name: {name}\n", service)
        self.assertIn(f"- port: {port}\n", service)

    def test_jobset(self):
        text = (EXAMPLES / "jobset.yaml").read_text()
        try:
            import yaml
            self.assertEqual(yaml.safe_load(text)["kind"], "JobSet")
        except ImportError:
            pass  # Debian's python3-yaml is not one of the build's packages
        self.assertNotIn("\t", text)
        names = re.findall(r"- name: ([A-Z_]+)\b", text)
        self.assertEqual(names, ["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "JOB_TOKEN", "JOB_FLIGHT"])
        for name in [*names, "JOB_COMPLETION_INDEX"]:
            self.assertIn(f'"{name}"', CODE)
        numbers = [re.search(pattern, text)[1] for pattern in
                   (r"completions: (\d+)", r"parallelism: (\d+)", r'WORLD_SIZE.*\n\s+value: "(\d+)"')]
        self.assertEqual(numbers, ["4", "4", "4"], "processes, of a mesh dp2,tp2")
        host = re.search(r"MASTER_ADDR.*\n\s+value: (\S+)", text)[1]
        job = re.search(r"metadata:\n  name: (\S+)", text)[1]
        replicated = re.search(r"replicatedJobs:\n    - name: (\S+)", text)[1]
        self.assertEqual(host, f"{job}-{replicated}-0-0.{job}")


if __name__ == "__main__":
    unittest.main()
