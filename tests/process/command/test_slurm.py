# SPDX-License-Identifier: Apache-2.0
"""Slurm's plug-in and epilog (scripts/clusters/slurm) in a real cluster: two nodes, both of which
are this machine, with daemons, a key and folders of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import (
    CLI,
    INSTALLED,
    MIB,
    ROOT,
    TIMEOUT_S,
    ProcessTest,
    Result,
    held_ports,
    process_folders,
    program,
    report_of,
    run,
    run_folders,
)

SLURM = ROOT / "scripts" / "clusters" / "slurm"
NODES = ("one", "two")
DAEMONS = ("munged", "slurmctld", "slurmd")

CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
SlurmctldPort={ports[0]}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
KillWait=2
PlugStackConfig={folder}/plugstack.conf
Epilog={folder}/epilog.sh
SchedulerParameters=bf_interval=1,sched_interval=1
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4 RealMemory=100
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4 RealMemory=100
PartitionName=all Nodes=one,two Default=YES MaxTime=INFINITE State=UP
SlurmdParameters=config_overrides
"""


def wait_for(what: str, happened: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    end = time.monotonic() + timeout_s
    while not happened():
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(0.1)


class Cluster:
    """Its daemons are ended by the pids that they wrote."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.folder = folder
        host = socket.gethostname().split(".")[0]
        self.configuration = folder / "slurm.conf"
        self.configuration.write_text(CONFIGURATION.format(folder=folder, host=host, ports=ports))
        (folder / "state").mkdir()
        self.plugin = folder / "memshim_spank.so"
        strict = ["-Wall", "-Wextra", "-Werror"]
        made = ["-shared", "-fPIC", "-o", str(self.plugin), str(SLURM / "memshim_spank.c")]
        run(["cc", *strict, *made]).check()
        self.preload(INSTALLED)
        epilog = folder / "epilog.sh"
        epilog.write_text(f"#!/bin/sh\nMEMSHIM={CLI} exec {SLURM / 'epilog.sh'}\n")
        epilog.chmod(0o755)

    def preload(self, library: Path) -> None:
        (self.folder / "plugstack.conf").write_text(
            f"required {self.plugin} library={library} output={self.folder}/out-%u\n"
        )

    def start(self) -> None:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        files = {
            "key-file": key.name,
            "socket": "munge.socket",
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munge.seed",
        }
        names = [f"--{name}={self.folder / file}" for name, file in files.items()]
        run(["munged", "--force", *names]).check()
        self.command("slurmctld").check()
        for node in NODES:
            self.command("slurmd", "-N", node).check()
        asked = ("sinfo", "--noheader", "--states=idle", "--format=%D")
        wait_for("both nodes are idle", lambda: "2" in self.command(*asked).stdout)

    def command(self, *words: str | Path, **settings: Any) -> Result:
        return run([str(word) for word in words], SLURM_CONF=self.configuration, **settings)

    def stop(self) -> None:
        self.command("scancel", "--state=RUNNING", "--full", "--signal=KILL")
        for name in (*(f"slurmd-{node}" for node in NODES), "slurmctld", "munged"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
                os.kill(int((self.folder / f"{name}.pid").read_text()), signal.SIGTERM)


class Slurm(ProcessTest):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        missing = [name for name in (*DAEMONS, "cc") if shutil.which(name) is None]
        if missing:
            raise unittest.SkipTest(f"{', '.join(missing)} not installed")
        if not Path("/usr/include/slurm/spank.h").exists():
            raise unittest.SkipTest("slurm/spank.h is not installed")
        if os.getuid() != 0:
            raise unittest.SkipTest("Slurm's daemons are started as root")
        holder = tempfile.TemporaryDirectory(prefix="memshim-slurm.", ignore_cleanup_errors=True)
        cls.addClassCleanup(holder.cleanup)
        stack = contextlib.ExitStack()
        cls.addClassCleanup(stack.close)
        cls.cluster = Cluster(Path(holder.name), stack.enter_context(held_ports(3)))
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()

    def command(self, *words: str | Path) -> Result:
        return self.cluster.command(*words)

    def batch(self, *options: str, script: str) -> str:
        """The job's id."""
        path = self.folder / "job.sh"
        path.write_text(f"#!/bin/sh\n{script}\n")
        asked = ["sbatch", "--parsable", f"--output={self.folder}/slurm-%j.out", *options]
        return self.command(*asked, path).check().stdout.strip()

    def ended(self, job: str) -> None:
        wait_for(f"job {job} has ended", lambda: job not in self.command("squeue", "-h").stdout)

    def test_srun(self) -> None:
        """Two tasks under half of the device, in one run by the id of their job."""
        self.command(
            "srun",
            "--memshim=0.5",
            f"--memshim-output={self.output}",
            "--nodes=2",
            program("trainer"),
            "--steps",
            "1",
        ).check()
        self.assertEqual(len(run_folders(self.output)), 1)
        self.assertRegex(run_folders(self.output)[0].name, r"^\d+$")
        folders = process_folders(self.output)
        self.assertEqual(len(folders), 2)
        wait_for("both reports", lambda: all((one / "report.json").exists() for one in folders))
        reports = [report_of(folder) for folder in folders]
        self.assertEqual(sorted(one["process"]["rank"] for one in reports), [0, 1])
        for one in reports:
            self.assertEqual(one["devices"][0]["cap_bytes"], 12 * 1024 * MIB)

    def test_not_asked(self) -> None:
        said = self.command("srun", "env").check().stdout
        self.assertNotIn("LD_PRELOAD", said)
        self.assertNotIn("MEMSHIM_OUTPUT", said)

    def test_default_folder(self) -> None:
        """Of plugstack.conf; what the user's own environment says comes before it."""
        said = self.command("srun", "--memshim", "env").check().stdout
        self.assertIn(f"MEMSHIM_OUTPUT={self.cluster.folder}/out-root\n", said)
        self.assertIn(f"LD_PRELOAD={INSTALLED}\n", said)
        self.assertNotIn("MEMSHIM_FRACTION", said)
        said = self.cluster.command("srun", "--memshim", "env", MEMSHIM_OUTPUT="/own").stdout
        self.assertIn("MEMSHIM_OUTPUT=/own\n", said)

    def test_other_preloads_stay(self) -> None:
        libc = run(["cc", "-print-file-name=libm.so.6"]).check().stdout.strip()
        said = self.command("srun", f"--export=ALL,LD_PRELOAD={libc}", "--memshim", "env").stdout
        self.assertIn(f"LD_PRELOAD={INSTALLED}:{libc}\n", said)

    def test_bad_values(self) -> None:
        for option, complaint in (
            ("--memshim=2", "--memshim=2: not a fraction of the device's memory"),
            ("--memshim=half", "--memshim=half: not a fraction of the device's memory"),
            ("--memshim-output=out", "--memshim-output=out: not an absolute path"),
        ):
            with self.subTest(option):
                result = self.command("srun", option, "true")
                self.assertNotEqual(result.status, 0)
                self.assertIn(complaint, result.stderr)

    def test_library_not_on_the_node(self) -> None:
        """The job is not lost for it."""
        self.cluster.preload(Path("/nowhere/libmemshim.so"))
        self.addCleanup(self.cluster.preload, INSTALLED)
        result = self.command("srun", "--memshim", "env").check()
        self.assertNotIn("LD_PRELOAD", result.stdout)
        self.assertIn("/nowhere/libmemshim.so cannot be read on this node", result.stderr)

    def test_cancelled(self) -> None:
        """A job that scancel ends by a signal has its report, by the epilog."""
        job = self.batch(
            f"--memshim-output={self.output}", script=f"exec {program('trainer')} --steps 100000000"
        )
        wait_for("the trace", lambda: len(process_folders(self.output)) == 1)
        self.command("scancel", "--full", "--signal=KILL", job).check()
        self.ended(job)
        (folder,) = process_folders(self.output)
        wait_for("the report of a killed process", (folder / "report.txt").exists)
        self.assertIn("killed", (folder / "report.txt").read_text())
        self.assertEqual(folder.parent.name, job)

    def test_out_of_memory(self) -> None:
        """245 MiB for 384 MiB of parameters: the job fails as it would, and the report says why."""
        job = self.batch(
            f"--memshim-output={self.output}",
            "--memshim=0.01",
            script=f"{program('trainer')} --steps 1; echo status $?",
        )
        self.ended(job)
        written = self.folder / f"slurm-{job}.out"
        wait_for("the job's output", lambda: "status" in written.read_text())
        self.assertIn("status 3", written.read_text())
        (folder,) = process_folders(self.output)
        wait_for("the report", (folder / "report.txt").exists)
        self.assertIn("OUT OF MEMORY", (folder / "report.txt").read_text())

    def test_array(self) -> None:
        job = self.batch(
            f"--memshim-output={self.output}",
            "--array=0-1",
            script=f"exec {program('trainer')} --steps 1",
        )
        self.ended(job)
        self.assertEqual(len(run_folders(self.output)), 2)
        self.assertEqual(len(process_folders(self.output)), 2)

    def test_requeued(self) -> None:
        """Each start of a job has a run of its own."""
        job = self.batch(
            f"--memshim-output={self.output}",
            "--requeue",
            script=f'[ -n "$SLURM_RESTART_COUNT" ] && exec {program("trainer")} --steps 1\n'
            f"exec {program('trainer')} --steps 100000000",
        )
        wait_for("the first trace", lambda: len(process_folders(self.output)) == 1)
        self.command("scontrol", "requeue", job).check()
        wait_for("the second trace", lambda: len(process_folders(self.output)) == 2)
        self.ended(job)
        names = [folder.name for folder in run_folders(self.output)]
        self.assertEqual(names, [job, f"{job}.1"])
        for folder in process_folders(self.output):
            wait_for(f"the report in {folder}", (folder / "report.txt").exists)

    def test_heterogeneous(self) -> None:
        """Both parts of a job of two parts are in one run, with ranks of their own."""
        part = [f"--memshim-output={self.output}", str(program("trainer")), "--steps", "1"]
        self.command("srun", *part, ":", *part).check()
        self.assertEqual(len(run_folders(self.output)), 1)
        folders = process_folders(self.output)
        for folder in folders:
            wait_for(f"the report in {folder}", (folder / "report.json").exists)
        self.assertEqual(sorted(report_of(one)["process"]["rank"] for one in folders), [0, 1])


if __name__ == "__main__":
    unittest.main()
