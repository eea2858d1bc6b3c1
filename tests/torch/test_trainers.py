# SPDX-License-Identifier: Apache-2.0
"""What memory is for, steps, and whose line is named, in other people's loops and optimizers.

Every loop trains the same network (tests/workloads/trainers.py), which counts its own bytes.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import harness

sys.path.append(str(Path(__file__).resolve().parents[1] / "frameworks"))

from ordinary import Ordinary, Program  # noqa: E402

SCRIPT = harness.WORKLOADS / "trainers.py"
# Tells the simulated GPU where PyTorch puts a new tensor: nothing is known of its values then.
READERS = harness.BUILD / "simgpu" / "libsimgpu-torch.so"
STEPS = 5
LEAKING = ("--steps", "12", "--leak")
MIB = 1 << 20

# Prompts that a language model answers; what the device computes decides how long an answer gets.
GENERATE = """\
import json
import torch
from transformers import GPT2Config, GPT2LMHeadModel

def main():
    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000, n_positions=256)
    model = GPT2LMHeadModel(config).cuda().eval()
    kept = []
    for _ in range(16):
        ids = torch.randint(1, 999, (4, 32)).cuda()
        mask = torch.ones_like(ids)
        out = model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False,
                             pad_token_id=0)
        kept.append(torch.zeros(2 << 20, device="cuda"))
    print(json.dumps({"event": "end", "peak_bytes": torch.cuda.max_memory_allocated(),
                      "prompts": out.shape[0]}))

main()
"""

# Low-rank adapters of a frozen model, under Trainer; a callback keeps something in each step.
ADAPTERS = """\
import json
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

class Adapter(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(base.weight.shape[0], rank) * 0.01)
        self.up = nn.Parameter(torch.zeros(rank, base.weight.shape[1]))

    def forward(self, x):
        return self.base(x) + x @ self.down @ self.up

class Keeps(TrainerCallback):
    kept = []

    def on_step_end(self, args, state, control, **rest):
        self.kept.append(torch.zeros(2 << 20, device="cuda"))

def main():
    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000, n_positions=256)
    model = GPT2LMHeadModel(config)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    for block in model.transformer.h:
        block.attn.c_attn = Adapter(block.attn.c_attn)
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(1, 999, (96, 64))]
    arguments = TrainingArguments("out", per_device_train_batch_size=8, max_steps=12,
                                  report_to=[], save_strategy="no", logging_strategy="no",
                                  disable_tqdm=True)
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[Keeps()])
    trainer.train()
    print(json.dumps({"event": "end", "peak_bytes": torch.cuda.max_memory_allocated(),
                      "steps": trainer.state.global_step}))

main()
"""

# Lightning, with a metric that keeps what it has seen and is never reset.
METRIC = """\
import json
import lightning, torch, torchmetrics
from torch import nn

class Scores(torchmetrics.Metric):
    def __init__(self):
        super().__init__()
        self.seen = []

    def update(self, scores):
        self.seen.append(scores * 1.0)

    def compute(self):
        return torch.tensor(float(len(self.seen)))

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(*[nn.Linear(1024, 1024) for _ in range(6)])
        self.scores = Scores()

    def training_step(self, batch, _):
        y = self.network(batch)
        self.scores.update(y.detach())
        return y.square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())

def main():
    module = Module()
    data = torch.utils.data.DataLoader(torch.ones(12 * 2048, 1024), batch_size=2048)
    trainer = lightning.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False,
                                enable_checkpointing=False, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(module, data)
    print(json.dumps({"event": "end", "peak_bytes": torch.cuda.max_memory_allocated(),
                      "steps": trainer.global_step}))

main()
"""


def run(
    *arguments: str, ranks: int = 1, zeros: bool = False
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """What each rank said at its end, and its report.

    zeros: a value that a kernel would have computed is zero when the host reads it. Otherwise it is
    what an earlier tensor left in that memory, which differs from rank to rank.
    """
    with tempfile.TemporaryDirectory(prefix="memshim-test.") as folder:
        start = harness.torchrun(ranks) if ranks > 1 else [sys.executable]
        if not zeros:
            start = [str(harness.CLI), "run", "--", *start]
        result = harness.run_command(
            [*start, SCRIPT, "--steps", str(STEPS), *arguments],
            preload=[READERS, harness.SHIM] if zeros else None,
            cwd=Path(folder),
            MEMSHIM_OUTPUT=f"{folder}/out",
            TORCHINDUCTOR_CACHE_DIR=f"{folder}/inductor",
            SIMGPU_DEVICES=ranks,
            SIMGPU_CONTENTS="none",
            SIMGPU_VALUES="zeros" if zeros else None,
        )
        reports, _ = harness.reports_in(Path(folder) / "out")
    ends = sorted(result.check().lines("end"), key=lambda line: int(line["rank"]))
    reports.sort(key=lambda report: int(report["process"]["rank"] or 0))
    if not len(ends) == len(reports) == ranks:
        raise AssertionError(result.describe())
    return ends, reports


def deepspeed(stage: str, *arguments: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Its ranks must read the same values: by them it decides whether to make a step, and it prints
    a parameter, which takes as much memory as the values say."""
    return run("--loop", "deepspeed", "--stage", stage, *arguments, ranks=2, zeros=True)


def needs(*packages: str) -> Any:  # noqa: ANN401
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, f"{' and '.join(missing)} not installed")


def line_of(text: str) -> int:
    """In the script."""
    source = SCRIPT.read_text()
    return 1 + source[: source.index(text)].count("\n")


def kinds_of(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in report["kinds"]}


@harness.needs_torch
class Trainers(unittest.TestCase):
    def assert_near(self, seen: int, truth: int, what: str) -> None:
        self.assertAlmostEqual(seen / truth, 1, delta=0.05, msg=f"{what}: {seen}, not {truth}")

    def check(self, end: dict[str, Any], report: dict[str, Any], gradients: bool = True) -> None:
        """Steps are the optimizer's; kinds are what the script counted, to 5 %."""
        self.assertEqual(report["steps"]["count"], STEPS, report["steps"])
        self.assertEqual(end["updates"], STEPS)
        kinds = kinds_of(report)
        if end["parameter_bytes"]:
            self.assert_near(kinds["parameters"]["bytes"], end["parameter_bytes"], "parameters")
        state = kinds["optimizer state"]
        self.assert_near(
            max(state["bytes"], state["at_peak_bytes"]), end["optimizer_bytes"], "state"
        )
        if gradients:
            truth = end["gradient_bytes"] * STEPS
            self.assert_near(kinds["gradients"]["bytes"], truth, "gradients")
        self.assertNotIn("unknown", kinds)
        at_peak = sum(row["at_peak_bytes"] for row in report["kinds"])
        self.assertEqual(at_peak, report["devices"][0]["peak_live_bytes"])

    def check_one(self, *arguments: str) -> dict[str, Any]:
        (end,), (report,) = run(*arguments)
        self.check(end, report)
        self.assert_own_lines(report)
        return report

    def assert_own_lines(self, report: dict[str, Any]) -> None:
        """What a model computes is the model's line; the rest is a line of the loop's."""
        for kind in ("parameters", "optimizer state", "activations", "inputs"):
            row = kinds_of(report).get(kind)
            if row and row["at_peak_bytes"] > MIB:
                self.assertIn("trainers.py", str(row["largest_line"]), kind)

    def assert_leak(self, report: dict[str, Any]) -> None:
        """The one leak is the line that keeps 8 MiB in each step."""
        (leak,) = report["devices"][0]["leaks"]
        self.assertEqual(leak["common_frame"]["line"], line_of("kept.append"))
        self.assertEqual((leak["by"], leak["bytes_per_round"]), ("step", 8 * MIB))

    @needs("transformers", "accelerate")
    def test_transformers_trainer(self) -> None:
        self.check_one("--loop", "transformers")

    @needs("lightning")
    def test_lightning(self) -> None:
        self.check_one("--loop", "lightning")

    def test_inference_is_steps_and_what_each_keeps_is_named(self) -> None:
        (end,), (report,) = run("--loop", "inference", "--steps", "20", "--leak")
        self.assertEqual(report["steps"]["count"], end["updates"])
        self.assertGreaterEqual(report["steps"]["confidence"], 0.9)
        self.assert_leak(report)

    @needs("transformers", "accelerate")
    def test_what_a_model_keeps_under_transformers_trainer(self) -> None:
        _, (report,) = run("--loop", "transformers", *LEAKING)
        self.assert_leak(report)

    @needs("deepspeed")
    def test_what_a_model_keeps_under_deepspeed(self) -> None:
        for stage in ("2", "3"):
            with self.subTest(stage):
                for report in deepspeed(stage, *LEAKING)[1]:
                    self.assert_leak(report)

    @harness.thorough
    @needs("accelerate")
    def test_accelerate(self) -> None:
        self.check_one("--loop", "accelerate")

    @harness.thorough
    def test_a_closure(self) -> None:
        self.check_one("--loop", "closure", "--optimizer", "momentum")

    def test_state_that_is_made_by_the_constructor(self) -> None:
        self.check_one("--optimizer", "adagrad")

    @unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed")
    def test_compiled_by_inductor(self) -> None:
        report = self.check_one("--compile")
        self.assertIn("Network.forward", kinds_of(report)["activations"]["largest_line"])

    @harness.thorough
    def test_fsdp2(self) -> None:
        for end, report in zip(*run("--loop", "fsdp2", ranks=2), strict=True):
            self.check(end, report)

    @needs("bitsandbytes")
    def test_bitsandbytes(self) -> None:
        self.check_one("--optimizer", "AdamW8bit")

    @needs("bitsandbytes")
    def test_bitsandbytes_with_paged_state(self) -> None:
        self.check_one("--optimizer", "PagedAdamW8bit")

    @needs("deepspeed")
    def test_zero_2(self) -> None:
        ends, reports = deepspeed("2")
        for end, report in zip(ends, reports, strict=True):
            self.check(end, report, gradients=False)
            gradients = kinds_of(report)["gradients"]["at_peak_bytes"]
            self.assert_near(gradients, end["gradient_bytes"], "gradients")

    @needs("deepspeed")
    def test_zero_3(self) -> None:
        ends, reports = deepspeed("3")
        for end, report in zip(ends, reports, strict=True):
            self.check(end, report, gradients=False)
            kinds = kinds_of(report)
            self.assert_near(
                kinds["gradients"]["at_peak_bytes"], end["gradient_bytes"], "gradients"
            )
            self.assertIn("communication", kinds)


@harness.needs_torch
class Scripts(Ordinary):
    def check(self, program: Program, steps: int, line: str) -> None:
        self.check_script(
            program, steps=steps, line=line, each=8 * MIB, refused="CUDA out of memory"
        )

    @needs("transformers")
    def test_prompts_are_steps_and_tokens_are_not(self) -> None:
        self.check(Program(GENERATE), 16, "kept.append")

    @harness.thorough
    @needs("transformers", "accelerate")
    def test_adapters_under_transformers_trainer(self) -> None:
        self.check(Program(ADAPTERS), 12, "self.kept.append")

    @harness.thorough
    @needs("lightning")
    def test_a_metric_under_lightning(self) -> None:
        self.check(Program(METRIC), 12, "self.seen.append")


@harness.needs_torch
@harness.thorough
class Loops(Ordinary):
    """tests/workloads/trainers.py in each loop and with each optimizer, where its model keeps 8 MiB
    of each call."""

    def check(self, *arguments: str, ranks: int = 0, zeros: bool = False, steps: int = 12) -> None:
        """zeros: as run() has it."""
        # Nothing may stand before that line but words of a document.
        source = SCRIPT.read_text().replace("from __future__ import annotations", "", 1)
        settings = {
            "SIMGPU_CONTENTS": "none",
            "SIMGPU_DEVICES": max(ranks, 1),
            "SIMGPU_VALUES": "zeros" if zeros else None,
        }
        before = harness.preloading(READERS) if zeros else ()
        self.check_script(
            Program(source, (*LEAKING, "--steps", str(steps), *arguments), ranks, settings, before),
            steps=steps,
            line="self.kept.append",
            each=8 * MIB,
            refused="CUDA out of memory",
        )

    @needs("transformers", "accelerate")
    def test_transformers_trainer(self) -> None:
        self.check("--loop", "transformers")

    @needs("lightning")
    def test_lightning(self) -> None:
        self.check("--loop", "lightning")

    @needs("accelerate")
    def test_accelerate(self) -> None:
        self.check("--loop", "accelerate")

    def test_a_closure(self) -> None:
        self.check("--loop", "closure", "--optimizer", "momentum")

    def test_state_that_is_made_by_the_constructor(self) -> None:
        self.check("--optimizer", "adagrad")

    def test_fsdp2(self) -> None:
        self.check("--loop", "fsdp2", ranks=2)

    @needs("bitsandbytes")
    def test_bitsandbytes(self) -> None:
        self.check("--optimizer", "AdamW8bit")

    @needs("bitsandbytes")
    def test_bitsandbytes_with_paged_state(self) -> None:
        self.check("--optimizer", "PagedAdamW8bit")

    @unittest.skipUnless(importlib.util.find_spec("triton"), "Triton is not installed")
    def test_compiled_by_inductor(self) -> None:
        """Dynamo compiles the model anew for each length of what it keeps. It gives up after eight,
        and only then does that line ask for it."""
        self.check("--compile", steps=40)

    @needs("deepspeed")
    def test_zero_2(self) -> None:
        self.check("--loop", "deepspeed", "--stage", "2", ranks=2, zeros=True)

    @needs("deepspeed")
    def test_zero_3(self) -> None:
        self.check("--loop", "deepspeed", "--stage", "3", ranks=2, zeros=True)


if __name__ == "__main__":
    unittest.main()
