"""One workload over two nodes of a real Slurm, for which one machine stands: PyTorch's and JAX's ranks under `srun`.

    python docs/evidence/slurm.py    # writes the table in ../clusters.md

Needs Slurm and MUNGE, with their programs on the path (Debian: `apt-get install slurm-wlm munge`). Starts both with a
configuration, keys and sockets of its own in a temporary folder, and ends them; no service of the system's is touched,
and all of it listens to the loopback device alone. The two nodes are two daemons on this machine, which have to be
started by one user (`SlurmUser`), who is whoever runs this.

JAX asks Slurm by itself where the others are, in a run without fwbench; fwbench's own ranks read Slurm's variables.
The nodes have loopback addresses for names, as a node's name must lead to it.
"""

import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "clusters.md"
BEGIN, END = "<!-- slurm: begin -->", "<!-- slurm: end -->"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
NODES = ("127.0.0.1", "127.0.0.2")

# As JAX's users start it: no address, no number.
DETECTION = """
import jax
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize()
print(jax.process_index(), jax.process_count(), len(jax.devices()), flush=True)
"""

CONFIGURATION = """
ClusterName=fwbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName={nodes[0]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 State=UNKNOWN
NodeName={nodes[1]} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """A Slurm of two nodes, for as long as this lasts."""
    for name in ("state", "munge", *(f"spool.{node}" for node in NODES)):
        (folder / name).mkdir(mode=0o700)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    host = socket.gethostname().partition(".")[0]
    values = {"host": host, "user": getpass.getuser(), "folder": folder, "nodes": NODES, "ports": free_ports(3)}
    configuration.write_text(CONFIGURATION.format(**values))
    os.environ["SLURM_CONF"] = str(configuration)
    own = [f"--{name}={folder}/munge/{name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    commands = [
        # Where others could write into its folder's parent, MUNGE asks to be forced.
        ["munged", "--foreground", "--force", f"--key-file={key}", *own],
        ["slurmctld", "-D", "-c", "-f", str(configuration)],
        *(["slurmd", "-D", "-N", node, "-f", str(configuration)] for node in NODES),
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            log = (folder / f"{len(running)}.log").open("wb")
            running.append(subprocess.Popen(command, stdout=log, stderr=log))
            if command[0] == "munged":
                wait(lambda: (folder / "munge" / "socket").exists(), folder)
        wait(lambda: said("sinfo", "--noheader", "--format=%D %t") == "2 idle", folder)
        yield
    finally:
        # The nodes before their controller, and all before what they are known by.
        for process in reversed(running):
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=20)
            process.kill()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at."""
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def wait(there, folder: Path, seconds: float = 60.0) -> None:
    """Wait until something is there."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            logs = "\n".join(log.read_text(errors="replace")[-500:] for log in sorted(folder.glob("*.log")))
            sys.exit(f"Slurm did not come up within {seconds:g} s; its daemons said:\n{logs}")
        time.sleep(0.2)


def said(*command: str) -> str:
    """Standard output of a command; its standard error is this process's."""
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600).stdout.strip()


def srun(*command: str) -> str:
    """What two processes say, one on each node."""
    return said("srun", "--nodes=2", "--ntasks=2", *command)


def measured(lane: str, mode: str, folder: Path) -> list[str]:
    """A row of the table."""
    path = folder / f"{lane}-{mode}.json"
    fields = (f"lane={lane}", "model=mlp", f"mode={mode}", "batch_size=128")
    said_by_all = srun(sys.executable, "-m", "fwbench", "measure", *fields, "--output", str(path))
    if not path.exists():
        return [f"`{lane}`", mode, "no record", said_by_all.replace("\n", " ")[-300:], "", ""]
    (benchmark,) = json.loads(path.read_text())["benchmarks"]
    ranks = benchmark["extra_info"]["ranks"]
    cores = " and ".join(", ".join(map(str, rank["cpus"])) for rank in ranks)
    join = max(rank["metrics"]["join_time"] for rank in ranks)
    rounds = str(benchmark["stats"]["rounds"])
    return [f"`{lane}`", mode, " and ".join(str(rank["rank"]) for rank in ranks), cores, rounds, f"{join:.1f} s"]


def main() -> list[str]:
    """The lines of the page between its marks."""
    with tempfile.TemporaryDirectory(prefix="fwbench-slurm-") as name, cluster(Path(name)):
        version = said("srun", "--version")
        names = srun("sh", "-c", "echo $SLURM_PROCID is on $SLURMD_NODENAME").splitlines()
        found = srun("env", "JAX_PLATFORMS=cpu", sys.executable, "-c", DETECTION).splitlines()
        rows = [measured(lane, mode, Path(name)) for lane in ("torch", "jax") for mode in ("inference", "train_step")]
    told = sorted(line for line in found if line[:1].isdigit())
    numbers = "; ".join("process {} of {}, which see {} devices".format(*line.split()) for line in told)
    return [
        f"{version} with two nodes on one machine: rank {', rank '.join(sorted(names))}. JAX's own detection of Slurm, "
        f"by `jax.distributed.initialize()` without any argument: {numbers or 'nothing'}.",
        "",
        "| lane | mode | ranks | CPUs | rounds | until they had joined |",
        "|---|---|---|---|--:|--:|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


if __name__ == "__main__":
    # Where Debian has daemons, and users do not look.
    os.environ["PATH"] += os.pathsep + os.pathsep.join(("/usr/sbin", "/usr/local/sbin"))
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        sys.exit(
            f"There is no {', '.join(missing)} here: install Slurm and MUNGE (Debian: apt-get install slurm-wlm munge)."
        )
    lines = main()
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text("\n".join([before + BEGIN, "", *lines, "", END + rest.partition(END)[2]]), encoding="utf-8")
    print("\n".join(lines))
