# SPDX-License-Identifier: Apache-2.0
"""What scripts/clusters offers for the places where jobs are started, checked by those places' own
tools; a test whose tool is not installed is skipped by its name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
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


RAY_JOB = """
import ctypes, os, sys, time
import ray

settings = dict(word.split("=", 1) for word in sys.argv[1:])

@ray.remote(max_restarts=1, runtime_env={"env_vars": settings})
class Trainer:
    def take(self, mib):
        cu = ctypes.CDLL("libcuda.so.1")
        at, context, device = ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_int()
        assert cu.cuInit(0) == 0 and cu.cuDeviceGet(ctypes.byref(device), 0) == 0
        assert cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
        assert cu.cuCtxSetCurrent(context) == 0
        return cu.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(mib << 20))
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


class Ray(ProcessTest):
    def test_actors(self) -> None:
        """Two workers, one of which is started again: each has its trace, in one run."""
        python = Path(need(self, "ray")).parent / "python"
        (self.folder / "job.py").write_text(RAY_JOB)
        settings = {
            "LD_PRELOAD": SHIM,
            "LD_LIBRARY_PATH": SIMGPU,
            "MEMSHIM_OUTPUT": self.output,
            "MEMSHIM_RUN_ID": "train-1",
        }
        words = [f"{name}={value}" for name, value in settings.items()]
        run([str(python), str(self.folder / "job.py"), *words]).check()
        run([CLI, "report", self.output]).check()
        peaks = [
            report_of(folder)["devices"][0]["peak_live_bytes"]
            for folder in self.output.glob("train-1/*")
            if folder.is_dir()
        ]
        self.assertEqual(sorted(peaks), [8 * MIB, 16 * MIB, 24 * MIB])


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


if __name__ == "__main__":
    unittest.main()
