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
               ("distributed/control/identity.cc", "distributed/launch/job.cc", "framework/dispatch/rank/flight.h"))


class Examples(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))

    def program(self, name, text):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return str(path)

    def run_script(self, script, code, **variables):
        """The output of a script whose trainer ends with a code. The fakes run it once, without their own flags."""
        start = 'while [ "$1" != "$PROGRAM" ]; do shift; done; exec "$@"\n'
        for name in ("srun", "torchrun"):
            self.program(name, start)
        environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                       "PROGRAM": self.program("train", f'echo "train $*"; env | grep ^JOB_; exit {code}\n'),
                       "DIAGNOSE": self.program("diagnose", 'echo "diagnosis of $1"\n'), **variables}
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
