# SPDX-License-Identifier: Apache-2.0
"""What scripts/clusters offers for the places where jobs are started, checked by those places' own
tools; a test whose tool is not installed is skipped by its name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from machine import (
    CLI,
    MIB,
    ROOT,
    SHIM,
    SIMGPU,
    ProcessTest,
    held_ports,
    process_folders,
    program,
    report_of,
    run,
)

CLUSTERS = ROOT / "scripts" / "clusters"
PROMETHEUS = CLUSTERS / "prometheus"


def need(case: unittest.TestCase, name: str) -> str:
    found = shutil.which(name)
    if found is None:
        case.skipTest(f"{name} is not installed")
    return found


def fetch(address: str) -> str:
    """What a server that was just started says, once it listens."""
    for _ in range(600):
        try:
            with urllib.request.urlopen(address) as answer:
                text: str = answer.read().decode()
                return text
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError(f"nothing listens at {address}")


class Monitoring(ProcessTest):
    def test_alerts(self) -> None:
        """Each rises where it has to and stays down where it has no reason."""
        promtool = need(self, "promtool")
        alerts = PROMETHEUS / "alerts.yml"
        run([promtool, "check", "rules", alerts]).check()
        run([promtool, "test", "rules", PROMETHEUS / "alerts_test.yml"]).check()
        tested = (PROMETHEUS / "alerts_test.yml").read_text()
        for name in re.findall(r"- alert: (\w+)", alerts.read_text()):
            self.assertRegex(tested, rf"alertname: {name}\n.*\n *exp_alerts:")

    def test_metrics_are_those_that_are_told(self) -> None:
        told = set(re.findall(r"\bmemshim_\w+", run([CLI, "statistics"]).check().stdout))
        self.assertGreater(len(told), 10)
        for path in (PROMETHEUS / "alerts.yml", PROMETHEUS / "dashboard.json"):
            named = set(re.findall(r"\bmemshim_\w+", path.read_text()))
            self.assertGreater(len(named), 4)
            self.assertLessEqual(named, told, path.name)
        board = json.loads((PROMETHEUS / "dashboard.json").read_text())
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))

    def test_textfile(self) -> None:
        promtool = need(self, "promtool")
        self.run_under_shim(program("trainer"), "--steps", "1").check()
        written = self.folder / "memshim.prom"
        run([CLI, "top", "--once", "--prometheus", written, self.output]).check()
        checked = subprocess.run(
            [promtool, "check", "metrics"],
            input=written.read_text(),
            capture_output=True,
            text=True,
        )
        self.assertEqual((checked.returncode, checked.stdout, checked.stderr), (0, "", ""))

    def test_node_exporter(self) -> None:
        """What its textfile collector reads is what it serves."""
        exporter = need(self, "prometheus-node-exporter")
        self.run_under_shim(program("trainer"), "--steps", "1").check()
        folder = self.folder / "textfiles"
        folder.mkdir()
        run([CLI, "top", "--once", "--prometheus", folder / "memshim.prom", self.output]).check()
        with held_ports(1) as (port,):
            address = f"127.0.0.1:{port}"
            served = subprocess.Popen(
                [
                    *(exporter, "--collector.disable-defaults", "--collector.textfile"),
                    *(
                        f"--collector.textfile.directory={folder}",
                        f"--web.listen-address={address}",
                    ),
                ],
                stderr=subprocess.DEVNULL,
            )
            try:
                text = fetch(f"http://{address}/metrics")
            finally:
                served.kill()
                served.wait()
        self.assertIn("node_textfile_scrape_error 0\n", text)
        told = set(re.findall(r"^memshim_\w+", (folder / "memshim.prom").read_text(), re.MULTILINE))
        self.assertTrue(told)
        self.assertLessEqual(told, set(re.findall(r"^memshim_\w+", text, re.MULTILINE)))


class Kubernetes(unittest.TestCase):
    def test_manifests(self) -> None:
        """Against the schema of the interface, nothing unknown in them."""
        validate = need(self, "kubernetes-validate")
        for manifest in sorted((CLUSTERS / "kubernetes").glob("*.yaml")):
            run([validate, "--strict", manifest]).check()

    def test_options_exist(self) -> None:
        known = run([CLI, "options"]).check().stdout
        for path in CLUSTERS.rglob("*"):
            text = path.read_text() if path.is_file() else ""
            for name in re.findall(r"\bMEMSHIM_[A-Z_]+\b", text):
                with self.subTest(f"{path.name}: {name}"):
                    self.assertIn(f"{name} ", known)


# How a task, an actor or a worker of Ray allocates: through the driver's interface.
RAY_TAKES = """
import ctypes, os, sys, time
import ray

settings = dict(word.split("=", 1) for word in sys.argv[1:])

def take(mib):
    cu = ctypes.CDLL("libcuda.so.1")
    at, context, device = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_int()
    assert cu.cuInit(0) == 0 and cu.cuDeviceGet(ctypes.byref(device), 0) == 0
    assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cu.cuCtxSetCurrent(context) == 0
    return cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20))
"""
RAY_ACTORS = """
@ray.remote(max_restarts=1, runtime_env={"env_vars": settings})
class Trainer:
    def take(self, mib):
        return take(mib)
    def die(self):
        os._exit(1)

ray.init(num_cpus=2, include_dashboard=False)
first, second = Trainer.remote(), Trainer.remote()
assert ray.get([first.take.remote(8), second.take.remote(16)]) == [0, 0]
try:
    ray.get(first.die.remote())
except Exception:
    pass
for _ in range(60):
    try:
        assert ray.get(first.take.remote(24)) == 0
        break
    except ray.exceptions.RayActorError:
        time.sleep(1)
ray.shutdown()
"""
RAY_TRAIN = """
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

def work():
    assert take(8 * (1 + ray.train.get_context().get_world_rank())) == 0

ray.init(num_cpus=4, include_dashboard=False)
DataParallelTrainer(
    work,
    scaling_config=ray.train.ScalingConfig(num_workers=2),
    run_config=ray.train.RunConfig(
        name="of-two", storage_path=os.getcwd(), worker_runtime_env={"env_vars": settings}
    ),
).fit()
ray.shutdown()
"""


class Ray(ProcessTest):
    def peaks(self, job: str) -> list[int]:
        """Of the processes of the one run that a job of Ray's makes, in MiB."""
        python = Path(need(self, "ray")).parent / "python"
        (self.folder / "job.py").write_text(RAY_TAKES + job)
        settings = {
            "LD_PRELOAD": SHIM,
            "LD_LIBRARY_PATH": SIMGPU,
            "MEMSHIM_OUTPUT": self.output,
            "MEMSHIM_RUN_ID": "train-1",
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        run([str(python), "job.py", *words], cwd=self.folder).check()
        run([CLI, "report", self.output]).check()
        return sorted(
            report_of(folder)["devices"][0]["peak_live_bytes"] // MIB
            for folder in self.output.glob("train-1/*")
            if folder.is_dir()
        )

    def test_actors(self) -> None:
        """Two workers, one of which is started again: each has its trace, in one run."""
        self.assertEqual(self.peaks(RAY_ACTORS), [8, 16, 24])

    def test_train(self) -> None:
        """The workers of Ray Train; its controller uses no device and leaves nothing."""
        self.assertEqual(self.peaks(RAY_TRAIN), [8, 16])


PYTHON_JOB = """
import ctypes
cu = ctypes.CDLL("libcuda.so.1")
context, device = ctypes.c_void_p(), ctypes.c_int()
assert cu.cuInit(0) == 0 and cu.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
assert cu.cuCtxSetCurrent(context) == 0
def take(mib):
    at = ctypes.c_uint64()
    assert cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20)) == 0
for _ in range(12):
    take(8)
"""


class Containers(ProcessTest):
    def test_read_only_and_not_root(self) -> None:
        """Pids of its own, a read-only root, a user who owns nothing and may write to nothing but
        the output folder."""
        need(self, "unshare")
        output = self.output
        output.mkdir()
        output.chmod(0o777)
        self.folder.chmod(0o755)
        script = (
            "mount --bind $1 $1; mount -o remount,ro,bind /; mount -t proc proc /proc; shift;"
            ' exec setpriv --reuid 65534 --regid 65534 --clear-groups --no-new-privs "$@"'
        )
        tried = run(["unshare", "--mount", "--pid", "--fork", "true"])
        if tried.status != 0:
            self.skipTest(f"no namespaces here: {tried.stderr.strip()}")
        isolated = ["unshare", "--mount", "--pid", "--fork", "bash", "-euc", script, "in"]
        job = [str(CLI), "run", "--", str(program("trainer")), "--steps", "2"]
        run(
            [*isolated, str(output), *job],
            MEMSHIM_OUTPUT=output,
            HOME="/nonexistent",
            XDG_CACHE_HOME="/nonexistent",
        ).check()
        (made,) = process_folders(output)
        self.assertIn("exit 0", (made / "report.txt").read_text())

    def test_barred_calls_and_a_small_shm(self) -> None:
        """Without the system calls that engines bar, and with less /dev/shm than they give: frames
        of Python are read, memory moves to the host, and a cap is of all processes of the run."""
        tried = run(["unshare", "--mount", "true"])
        if tried.status != 0:
            self.skipTest(f"no namespaces here: {tried.stderr.strip()}")
        script = 'mount -t tmpfs -o size=64k tmpfs /dev/shm; exec "$@"'
        confined = [sys.executable, str(ROOT / "tests" / "process" / "confined.py")]
        isolated = ["unshare", "--mount", "bash", "-euc", script, "in", *confined]
        self.assertIn("not permitted", run([*isolated, "unshare", "--mount", "true"]).stderr)
        job = self.folder / "job.py"
        job.write_text(PYTHON_JOB)
        options = ["--limit", "80MiB", "--spill", "auto", "--cap-of", "run"]
        run(
            [*isolated, str(CLI), "run", *options, "--", sys.executable, str(job)],
            MEMSHIM_OUTPUT=self.output,
            SIMGPU_CONTEXT=16 * MIB,
        ).check()
        (made,) = process_folders(self.output)
        text = (made / "report.txt").read_text()
        self.assertIn("job.py:10 in take", text)
        self.assertRegex(text, r"spill .* moved to the host")


if __name__ == "__main__":
    unittest.main()
