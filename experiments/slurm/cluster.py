"""A real Slurm whose nodes and GPUs are emulated on this machine: in a namespace of its own.

`sealed` is the command that begins such a namespace: a network with the loopback alone, and processes and
mounts that end with its first process. So no daemon outlives a run, however it ends, no user is added to the
machine, and several runs can go on at once. Nothing in it reaches another machine.

Settings that were found by trial, with Slurm 22.05 of Debian 12:

- getaddrinfo wants an address beside 127.0.0.1, hence 127.0.0.2.
- slurmd reported no GPUs where gres.conf stated a count alone, hence files of devices, which nothing uses.
- `SlurmdParameters=config_overrides` lets a node claim more CPUs and memory than the machine has.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from itertime.errors import UserError

from .workloads import CPUS_PER_NODE, GPUS_PER_NODE, USERS, Workload

__all__ = ["PACKAGES", "EmulatedCluster", "absent", "sealed"]

PACKAGES = "slurmctld slurmd slurm-client slurmdbd munge mariadb-server iproute2"
PROGRAMS = (
    "slurmctld", "slurmd", "slurmdbd", "sbatch", "squeue", "sacct", "sacctmgr", "scontrol", "munged",
    "mariadbd", "mariadb-install-db", "ip", "unshare", "setpriv", "runuser",
)  # fmt: skip
GPU_FILES = "/dev/tty[1-8]"
FIRST_UID = 61001
DATABASE_PORT, ACCOUNTING_PORT, CONTROLLER_PORT, NODE_PORT = 13306, 16819, 16817, 17001
ACCOUNT_OF_DATABASE = "local-only"  # the database listens on the namespace's loopback, and ends with it


def absent() -> str:
    """What this machine lacks to run a Slurm; empty if it lacks nothing."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs Linux and root, for namespaces"
    paths = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    programs = [name for name in PROGRAMS if shutil.which(name, path=paths) is None]
    if programs:
        return f"{', '.join(programs)}: not installed; apt-get install --no-install-recommends {PACKAGES}"
    return "" if os.path.exists("/dev/tty8") else f"{GPU_FILES}: not there, and stand for GPUs"


def sealed(command: Sequence[str]) -> list[str]:
    """The command as the first process of namespaces for network, mounts and processes. It ends with the
    thread that starts it.
    """
    namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["setpriv", "--pdeathsig", "KILL", "nice", "unshare", *namespaces, *command]


class EmulatedCluster:
    """The daemons of a workload. All state lies below `base`, a short path that every user may read."""

    def __init__(self, workload: Workload, base: Path):
        self.workload = workload
        self.base = base
        self.name = workload.name.replace("-", "")
        self.nodes = [f"n{number:02d}" for number in range(1, workload.nodes + 1)]
        self.environment = {
            **os.environ,
            "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin",
            "SLURM_CONF": str(base / "etc" / "slurm.conf"),
            "SLURM_TIME_FORMAT": "standard",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def start(self) -> None:
        """From an empty namespace to idle nodes. UserError names the daemon that did not start."""
        for name in ("etc", "log", "pid", "spool", "state", "munge", "database", "run"):
            (self.base / name).mkdir()
        self._isolate()
        self._start_munge()
        self._start_database()
        self._start_accounting()
        self._configure()
        self._add_accounts()
        self.call("slurmctld")
        self._wait_for("slurmctld", "scontrol ping", "UP", 120)
        self._set_limits()
        for node in self.nodes:
            (self.base / "spool" / node).mkdir()
            self.call(f"slurmd -N {node}")
        self._wait_for("slurmd", "sinfo -h -N -t idle -o %N", self.nodes[-1], 180, count=len(self.nodes))

    def call(self, command: str | Sequence[str], check: bool = True) -> str:
        """What a command prints. UserError if it fails, with what it says."""
        words = shlex.split(command) if isinstance(command, str) else list(command)
        process = subprocess.run(
            words, env=self.environment, cwd="/tmp", stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if check and process.returncode:
            raise UserError(f"{shlex.join(words)}: {(process.stderr or process.stdout).strip()}")
        return process.stdout

    def _isolate(self) -> None:
        """Addresses, a place for munge's socket, and users that the machine itself does not get."""
        self.call("ip link set lo up")
        self.call("ip addr add 127.0.0.2/8 dev lo")
        os.makedirs("/run/munge", exist_ok=True)
        self.call("mount -t tmpfs -o mode=755 tmpfs /run/munge")
        lines = [f"user{n}:x:{FIRST_UID + n}:100::/tmp:/usr/sbin/nologin\n" for n in range(1, USERS + 1)]
        users = self.base / "etc" / "passwd"
        users.write_text(Path("/etc/passwd").read_text(encoding="utf-8") + "".join(lines), encoding="utf-8")
        self.call(f"mount --bind {users} /etc/passwd")

    def _start_munge(self) -> None:
        key = self.base / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for path in (self.base / "munge", key, Path("/run/munge")):
            shutil.chown(path, "munge", "munge")
        (self.base / "munge").chmod(0o700)
        self.call(
            f"runuser -u munge -- munged --key-file {key} --pid-file /run/munge/pid "
            f"--log-file {self.base}/munge/log --seed-file {self.base}/munge/seed --num-threads 2"
        )

    def _start_database(self) -> None:
        data, server = self.base / "database", self.base / "run" / "my.sock"
        shutil.chown(data, "mysql", "mysql")
        shutil.chown(self.base / "run", "mysql", "mysql")
        # Names of temporary files hold the number of a process, which several namespaces have.
        options = f"--no-defaults --user=mysql --datadir={data} --tmpdir={self.base}/run"
        options += " --innodb-log-file-size=16M"
        self.call(f"mariadb-install-db {options} --skip-test-db")
        self._begin(
            f"mariadbd {options} --socket={server} --port={DATABASE_PORT} --bind-address=127.0.0.1 "
            "--innodb-buffer-pool-size=64M --innodb-lock-wait-timeout=900 "
            "--innodb-flush-log-at-trx-commit=2",
            "database",
        )
        self._wait_for("database", f"mariadb-admin --no-defaults --socket={server} ping", "alive", 60)
        grants = "create database slurm_acct_db;" + "".join(
            f"create user 'slurm'@'{host}' identified by '{ACCOUNT_OF_DATABASE}';"
            f"grant all on slurm_acct_db.* to 'slurm'@'{host}';"
            for host in ("127.0.0.1", "localhost")
        )
        self.call(["mariadb", "--no-defaults", f"--socket={server}", "-e", grants])

    def _start_accounting(self) -> None:
        path = self.base / "etc" / "slurmdbd.conf"
        settings = {
            "AuthType": "auth/munge",
            "DbdAddr": "127.0.0.1",
            "DbdHost": "localhost",
            "DbdPort": ACCOUNTING_PORT,
            "SlurmUser": "root",
            "LogFile": self.base / "log" / "slurmdbd",
            "PidFile": self.base / "pid" / "slurmdbd",
            "StorageType": "accounting_storage/mysql",
            "StorageHost": "127.0.0.1",
            "StoragePort": DATABASE_PORT,
            "StorageUser": "slurm",
            "StoragePass": ACCOUNT_OF_DATABASE,
            "StorageLoc": "slurm_acct_db",
        }
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        path.chmod(0o600)
        self.call("slurmdbd")

    def _configure(self) -> None:
        node_count = self.workload.nodes
        names = f"n[01-{node_count:02d}]"
        host = socket.gethostname()
        lines = [
            f"ClusterName={self.name}",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={CONTROLLER_PORT}",
            *(f"{key}={self.base}/{place}" for key, place in _PLACES.items()),
            *_SETTINGS,
            f"AccountingStoragePort={ACCOUNTING_PORT}",
            *self.workload.conf,
            f"NodeName={names} NodeHostname={host} NodeAddr=127.0.0.1 "
            f"Port=[{NODE_PORT}-{NODE_PORT + node_count - 1}] CPUs={CPUS_PER_NODE} RealMemory=1000 "
            f"Gres=gpu:a100:{GPUS_PER_NODE} State=UNKNOWN",
            *self.workload.partitions,
        ]
        (self.base / "jobcomp.txt").touch()
        (self.base / "etc" / "slurm.conf").write_text("\n".join([*lines, ""]), encoding="utf-8")
        gres = f"NodeName={names} Name=gpu Type=a100 File={GPU_FILES}\n"
        (self.base / "etc" / "gres.conf").write_text(gres, encoding="utf-8")

    def _add_accounts(self) -> None:
        """The cluster, its accounts with shares, and users."""
        self._wait_for("slurmdbd", "sacctmgr show qos -n -P format=Name", "normal", 120)
        cluster = f"cluster={self.name}"
        self.call(f"sacctmgr -i add cluster {self.name}")
        for account, share in self.workload.accounts.items():
            self.call(f"sacctmgr -i add account {account} {cluster} Fairshare={share}")
        for user, account in sorted({(r.user, r.account) for r in self.workload.requests}):
            self.call(f"sacctmgr -i add user {user} account={account} {cluster} DefaultAccount={account}")

    def _set_limits(self) -> None:
        """The workload's own commands. GPUs can be limited once the controller has named them."""
        for command in self.workload.sacctmgr:
            self.call(f"sacctmgr -i {command}")
        new_qos = [command.split()[2] for command in self.workload.sacctmgr if command.startswith("add qos")]
        if new_qos:
            names = ",".join(["normal", *new_qos])
            for account in self.workload.accounts:  # users inherit it
                self.call(f"sacctmgr -i modify account {account} set qos={names}")

    def _begin(self, command: str, name: str) -> None:
        """Start a program that stays in the foreground."""
        with (self.base / "log" / name).open("w") as log:
            subprocess.Popen(
                shlex.split(command), env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _wait_for(self, name: str, command: str, word: str, limit_s: int, count: int = 1) -> None:
        """Wait until a command prints a word, and `count` words in all. UserError after `limit_s` seconds."""
        for _ in range(2 * limit_s):
            words = self.call(command, check=False).split()
            if any(word in text for text in words) and len(words) >= count:
                return
            time.sleep(0.5)
        log = self.base / "log" / name
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-3:] if log.exists() else []
        raise UserError(f"{name}: is not up after {limit_s} s: {' / '.join(lines)}")


_PLACES = {
    "StateSaveLocation": "state",
    "SlurmdSpoolDir": "spool/%n",
    "SlurmctldPidFile": "pid/slurmctld",
    "SlurmdPidFile": "pid/%n",
    "SlurmctldLogFile": "log/slurmctld",
    "SlurmdLogFile": "log/%n",
    "JobCompLoc": "jobcomp.txt",
}
_SETTINGS = (
    "SlurmUser=root",
    "SlurmdUser=root",
    "AuthType=auth/munge",
    "SlurmctldDebug=verbose",
    "DebugFlags=Backfill",
    "SlurmdDebug=error",
    "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/none",
    "JobAcctGatherType=jobacct_gather/none",
    "MpiDefault=none",
    "SwitchType=switch/none",
    "ReturnToService=2",
    "SlurmdParameters=config_overrides",
    "GresTypes=gpu",
    "AccountingStorageTRES=gres/gpu,gres/gpu:a100",
    "AccountingStorageType=accounting_storage/slurmdbd",
    "AccountingStorageHost=127.0.0.1",
    "AccountingStorageEnforce=associations,limits,qos",
    "JobCompType=jobcomp/filetxt",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_CPU",
    "KillWait=5",
    "MinJobAge=900",
    "MaxJobCount=20000",
)
