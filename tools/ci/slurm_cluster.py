"""A Slurm of one node, for tests."""
import contextlib
import os
import socket
import subprocess
import time

SLURM = """
ClusterName=weft
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/linear
ReturnToService=2
MailProg=/bin/true
KillWait=3
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


@contextlib.contextmanager
def slurm_cluster(home, enter):
    """A Slurm of one node, whose daemons are children of this process. `home` is a new folder for its files;
    `enter(command)` is the command in the network namespace of the node. Raises TimeoutError with the ends of its logs
    if the node does not become idle."""
    for d in ("state", "spool"):
        (home / d).mkdir(parents=True)
    home.chmod(0o755)
    (home / "slurm.conf").write_text(SLURM.format(host=socket.gethostname().split(".")[0], folder=home,
                                                  cores=os.cpu_count()))
    (home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    key = home / "munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    os.environ["SLURM_CONF"] = str(home / "slurm.conf")
    daemons = []

    def start(*command):
        daemons.append(subprocess.Popen(enter(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL))

    try:
        start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={home}/munge.socket",
              f"--pid-file={home}/munge.pid", f"--log-file={home}/munge.log", f"--seed-file={home}/munge.seed")
        start("slurmctld", "-D")
        start("slurmd", "-D", "-N", socket.gethostname().split(".")[0])
        end = time.monotonic() + 30
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if "idle" in subprocess.run(enter(["sinfo", "-h", "-o", "%T"]), capture_output=True, text=True,
                                            timeout=5).stdout:
                    break
            time.sleep(0.2)
        else:
            raise TimeoutError("\n".join(f.read_text(errors="replace")[-600:] for f in home.glob("*.log")))
        yield
    finally:
        for d in reversed(daemons):
            d.terminate()
            d.wait()
        del os.environ["SLURM_CONF"]
