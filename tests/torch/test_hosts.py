# SPDX-License-Identifier: Apache-2.0
"""torchrun over two hosts, which are network namespaces of this machine with names of their own:
one run folder, in a folder that they share, and one report of all ranks."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import textwrap
import unittest
from pathlib import Path

import harness

RANKS = 4
JOB = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
kept = [torch.empty((8 + rank) << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
ones = torch.ones(1)
dist.all_reduce(ones)
assert ones.item() == dist.get_world_size()
dist.barrier()
# The first host keeps the rendezvous: it leaves last.
time.sleep(3 if os.uname().nodename == "node1" else 0)
"""


# The first attempt ends when a rank of one host fails; torchrun starts all ranks again.
FAILING = """
import os, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
node = os.uname().nodename
before = f"before-{node}-{local}"
again = os.path.exists(before)
open(before, "w").close()
kept = [torch.empty(8 << 20, dtype=torch.uint8, device="cuda") for _ in range(8 if again else 4)]
if not again:
    dist.barrier()
    # The other host's ranks do not fail: torchrun ends them.
    time.sleep(100 if node == "node1" or local == 1 else 1)
    raise SystemExit(3)
dist.barrier()
time.sleep(3 if node == "node1" else 0)
"""


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise unittest.SkipTest(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@harness.needs_torch
class TwoHosts(unittest.TestCase):
    def setUp(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("network namespaces need root")
        holder = tempfile.TemporaryDirectory(prefix="memshim-test.")
        self.addCleanup(holder.cleanup)
        self.folder = Path(holder.name)
        self.spaces = [f"memshim-{os.getpid()}-{number}" for number in (1, 2)]
        for space in self.spaces:
            try:
                ip("netns", "add", space)
            except FileNotFoundError:
                self.skipTest("ip is not installed")
            self.addCleanup(subprocess.run, ["ip", "netns", "del", space])
        first, second = self.spaces
        ip("link", "add", "msv1", "netns", first, "type", "veth", "peer", "msv2", "netns", second)
        lines = ["127.0.0.1 localhost"]
        for number, space in enumerate(self.spaces, 1):
            ip("-n", space, "addr", "add", f"10.77.0.{number}/24", "dev", f"msv{number}")
            for link in ("lo", f"msv{number}"):
                ip("-n", space, "link", "set", link, "up")
            lines.append(f"10.77.0.{number} node{number}")
        (self.folder / "hosts").write_text("\n".join(lines) + "\n")

    def host(self, number: int, job: str, *options: str) -> subprocess.Popen[str]:
        (self.folder / "job.py").write_text(textwrap.dedent(job))
        torchrun = [
            *("torchrun", "--nnodes", "2", "--nproc-per-node", "2"),
            *("--rdzv-id", "77", "--rdzv-backend", "c10d", "--rdzv-endpoint", "10.77.0.1:29577"),
            *("--rdzv-conf", "last_call_timeout=2", *options, str(self.folder / "job.py")),
        ]
        script = (
            f"mount --bind {self.folder}/hosts /etc/hosts; hostname node{number};"
            f' export GLOO_SOCKET_IFNAME=msv{number}; cd {self.folder}; exec "$@"'
        )
        return subprocess.Popen(
            [
                *("ip", "netns", "exec", self.spaces[number - 1], "unshare", "--uts", "--mount"),
                *("bash", "-euc", script, "host", str(harness.SIMGPU), str(harness.CLI), "run"),
                *("--output", str(self.folder / "out"), "--", "timeout", "200", *torchrun),
            ],
            # Of a store that both attempts share, gloo takes the first one's addresses.
            env=harness.environment(
                SIMGPU_DEVICES=2, SIMGPU_CONTENTS="none", TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run_job(self, job: str, *options: str) -> None:
        hosts = [self.host(number, job, *options) for number in (1, 2)]
        said = [host.communicate(timeout=300)[0] for host in hosts]
        self.assertEqual([host.returncode for host in hosts], [0, 0], "\n".join(said))

    def test_one_run_of_all_ranks(self) -> None:
        self.run_job(JOB)
        runs = self.folder / "out"
        found = sorted(path.name for path in runs.iterdir() if not path.is_symlink())
        self.assertEqual(found, ["77"])
        reports = [json.loads(path.read_text()) for path in runs.glob("77/*/report.json")]
        self.assertEqual(
            sorted(report["process"]["rank"] for report in reports), list(range(RANKS))
        )
        ranks = {"node1": set(), "node2": set()}  # type: dict[str, set[int]]
        for report in reports:
            rank = report["process"]["rank"]
            ranks[report["process"]["host"]].add(rank)
            (device,) = report["devices"]
            self.assertEqual(device["index"], report["process"]["local_rank"])
            self.assertGreaterEqual(device["peak_live_bytes"], 4 * (8 + rank) << 20)
        # Which host has the first two is torchrun's choice.
        self.assertEqual(sorted(map(sorted, ranks.values())), [[0, 1], [2, 3]])
        # A report of all, which says so.
        done = subprocess.run(
            [harness.CLI, "report", runs / "77"], capture_output=True, text=True, check=True
        )
        self.assertIn("4 processes on 2 hosts", done.stdout)

    @harness.thorough
    def test_each_attempt_is_a_run(self) -> None:
        self.run_job(FAILING, "--max-restarts", "2")
        runs = self.folder / "out"
        for name, blocks in (("77", 4), ("77.1", 8)):
            reports = [json.loads(path.read_text()) for path in runs.glob(f"{name}/*/report.json")]
            self.assertEqual(
                sorted(report["process"]["rank"] for report in reports), list(range(RANKS)), name
            )
            for report in reports:
                (device,) = report["devices"]
                self.assertEqual(device["peak_live_bytes"], blocks * 8 << 20, name)


if __name__ == "__main__":
    unittest.main()
