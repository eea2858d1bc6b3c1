# SPDX-License-Identifier: Apache-2.0
"""Jobs that keep more with each step: graphs, tensors, caches, metrics, hidden state."""

from __future__ import annotations

import itertools

import torch
from common import BYTE, block, job, loss_of, main, net, samples, step
from torch import nn

# Each graph of Net keeps 20 KiB a sample: its input and what each of four layers gave.


@job(
    name="graph-kept-loss-list",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
)
@job(
    name="graph-kept-loss-list-slow",
    reason="graph kept",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=384,
)
@job(
    name="graph-kept-loss-list-fast",
    reason="graph kept",
    verdict="growth",
    when="second",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=16384,
)
@job(
    name="graph-kept-loss-list-tensor",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    mode="tensor",
)
@job(
    name="graph-kept-loss-list-pool-off",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    mode="pool-off",
)
@job(
    name="graph-kept-loss-list-off",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    mode="off",
)
@job(
    name="graph-kept-loss-list-spill",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    spill_mib=512,
)
@job(
    name="graph-kept-loss-list-cap",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    memory_mib=4096,
    cap_mib=1024,
)
def loss_list(batch: int) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses: list[torch.Tensor] = []
    for _ in range(400):
        step(model, optimizer, samples(batch))
        losses.append(model(samples(batch)).mean())  # culprit


@job(
    name="graph-kept-running-sum",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`total`, a sum that still has its graph",
    batch=4096,
)
@job(
    name="graph-kept-running-sum-tensor",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`total`, a sum that still has its graph",
    batch=4096,
    mode="tensor",
)
def running_sum(batch: int) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    total = torch.zeros((), device="cuda")
    for _ in range(400):
        step(model, optimizer, samples(batch))
        total = total + model(samples(batch)).mean()  # culprit


@job(
    name="graph-kept-retain",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `history`; backward(retain_graph=True) left the graphs",
    batch=4096,
)
def retained(batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    history: list[torch.Tensor] = []
    for _ in range(400):
        history.append(model(samples(batch)).mean())  # culprit
        history[-1].backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()


@job(
    name="graph-kept-compile",
    reason="graph kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `losses`, by the graph of each loss",
    batch=4096,
    loop="compile",
)
def compiled(batch: int) -> None:
    model = net()
    quick = torch.compile(model, backend="aot_eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    losses: list[torch.Tensor] = []
    for _ in range(400):
        quick(samples(batch)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(quick(samples(batch)).mean())  # culprit


@job(
    name="kept-no-model",
    reason="tensors kept",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="the list `film`; no model is called, and no backward pass is made",
)
def film_kept(_batch: int) -> None:
    state = block(4)
    film: list[torch.Tensor] = []
    for _ in range(400):
        change = state + 1
        state = state + change
        film.append(state.clone())  # culprit


@job(
    name="tensors-kept-outputs",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs`",
    batch=8192,
)
@job(
    name="tensors-kept-outputs-slow",
    reason="tensors kept",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="the list `outputs`",
    batch=1024,
)
@job(
    name="tensors-kept-outputs-tensor",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs`",
    batch=8192,
    mode="tensor",
)
@job(
    name="tensors-kept-outputs-spill",
    reason="tensors kept",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the list `outputs`",
    batch=8192,
    spill_mib=256,
)
def outputs_kept(batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    outputs: list[torch.Tensor] = []
    for _ in range(400):
        step(model, optimizer, samples(256))
        with torch.no_grad():
            outputs.append(model(samples(batch)).clone())  # culprit


@job(
    name="cache-by-key",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the dictionary `cache`, whose keys never repeat",
)
@job(
    name="cache-by-key-pool-off",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the dictionary `cache`, whose keys never repeat",
    mode="pool-off",
)
@job(
    name="cache-by-key-cap",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="the dictionary `cache`, whose keys never repeat",
    memory_mib=8192,
    cap_mib=1024,
)
def cache_by_key(_batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    cache: dict[int, torch.Tensor] = {}
    for number in range(400):
        if number not in cache:
            cache[number] = torch.empty(24 << 20, dtype=BYTE, device="cuda")  # culprit
        step(model, optimizer, samples(256))


class Metric:
    """Keeps all predictions until somebody calls compute(), which nobody does."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def update(self, predictions: torch.Tensor) -> None:
        self.seen.append(predictions.float().clone())  # culprit: metric, metric-slow, metric-off


@job(
    name="metric",
    reason="metric in a class",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="Metric.seen",
    batch=8192,
)
@job(
    name="metric-slow",
    reason="metric in a class",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="Metric.seen",
    batch=1024,
)
@job(
    name="metric-off",
    reason="metric in a class",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="Metric.seen",
    batch=8192,
    mode="off",
)
def metric(batch: int) -> None:
    model = net(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    found = Metric()
    for _ in range(400):
        step(model, optimizer, samples(256))
        with torch.no_grad():
            found.update(model(samples(batch)))


@job(
    name="hidden-state",
    reason="hidden state never detached",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`hidden`, whose graph reaches back to the first step",
    batch=8192,
)
@job(
    name="hidden-state-slow",
    reason="hidden state never detached",
    verdict="growth",
    when="hundredth",
    where="forward",
    keeps="`hidden`, whose graph reaches back to the first step",
    batch=2048,
)
@job(
    name="hidden-state-tensor",
    reason="hidden state never detached",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`hidden`, whose graph reaches back to the first step",
    batch=8192,
    mode="tensor",
)
def hidden_state(batch: int) -> None:
    cell = nn.Linear(1024, 1024).cuda()
    optimizer = torch.optim.SGD(cell.parameters(), lr=1e-3)
    hidden = samples(batch)
    for _ in range(400):
        hidden = (cell(hidden) + samples(batch)).tanh()  # culprit
        hidden.mean().backward(retain_graph=True)
        optimizer.zero_grad()


@job(
    name="validation-fifth-step",
    reason="validation without no_grad",
    verdict="growth",
    when="tenth",
    where="evaluation",
    keeps="`valid`, with the graph of each validation",
    batch=8192,
)
@job(
    name="validation-every-step",
    reason="validation without no_grad",
    verdict="growth",
    when="tenth",
    where="evaluation",
    keeps="`valid`, with the graph of each validation",
    batch=4096,
)
@job(
    name="validation-fifth-step-spill",
    reason="validation without no_grad",
    verdict="growth",
    when="tenth",
    where="evaluation",
    keeps="`valid`, with the graph of each validation",
    batch=8192,
    spill_mib=256,
)
def validation(batch: int) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    valid: list[torch.Tensor] = []
    for number in itertools.count(1):
        step(model, optimizer, samples(512))
        if number % (5 if batch == 8192 else 1) == 0:
            model.eval()
            valid.append(model(samples(batch)).mean())  # culprit
            model.train()


@job(
    name="gradients-accumulate",
    reason="gradients kept by accumulation",
    verdict="growth",
    when="tenth",
    where="backward",
    keeps="the list `kept`, with the gradients of each batch",
)
@job(
    name="gradients-accumulate-pool-off",
    reason="gradients kept by accumulation",
    verdict="growth",
    when="tenth",
    where="backward",
    keeps="the list `kept`, with the gradients of each batch",
    mode="pool-off",
)
@job(
    name="gradients-accumulate-tensor",
    reason="gradients kept by accumulation",
    verdict="growth",
    when="tenth",
    where="backward",
    keeps="the list `kept`, with the gradients of each batch",
    mode="tensor",
)
def gradients(_batch: int) -> None:
    model = net(6)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    kept: list[tuple[torch.Tensor, ...]] = []
    for number in range(400):
        loss = loss_of(model, samples(256))
        kept.append(torch.autograd.grad(loss, list(model.parameters())))  # culprit
        if number % 4 == 3:
            optimizer.step()


@job(
    name="well-list-of-floats",
    reason="ends well",
    verdict="none",
    when="tenth",
    where="forward",
    keeps="nobody",
    names="none",
    batch=512,
)
@job(
    name="well-list-of-floats-tensor",
    reason="ends well",
    verdict="none",
    when="tenth",
    where="forward",
    keeps="nobody",
    names="none",
    batch=512,
    mode="tensor",
)
def floats(batch: int) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses: list[float] = []
    for _ in range(12):
        step(model, optimizer, samples(batch))
        losses.append(loss_of(model, samples(batch)).item())


@job(
    name="well-small-list",
    reason="ends well",
    verdict="none",
    when="tenth",
    where="forward",
    keeps="a list of 9 KiB a step that never matters",
    names="none",
    batch=512,
)
def small_list(batch: int) -> None:
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    kept: list[torch.Tensor] = []
    for _ in range(12):
        step(model, optimizer, samples(batch))
        kept.append(block(9 / 1024))


@job(
    name="buffer-grows",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`history`, which is made anew and longer in each step",
)
@job(
    name="buffer-grows-tensor",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`history`, which is made anew and longer in each step",
    mode="tensor",
)
@job(
    name="buffer-grows-spill",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`history`, which is made anew and longer in each step",
    spill_mib=128,
)
def buffer_grows(_batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    history = block(1)
    for _ in range(100):
        step(model, optimizer, samples(512))
        history = torch.cat([history, block(16)])  # culprit


@job(
    name="buffer-grows-few-steps",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`history`, which is made anew and longer in each step",
)
@job(
    name="buffer-grows-fast-cap",
    reason="cache",
    verdict="growth",
    when="tenth",
    where="forward",
    keeps="`history`, which is made anew and longer in each step",
    memory_mib=8192,
    cap_mib=1024,
)
def buffer_grows_fast(_batch: int) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    history = block(1)
    for _ in range(100):
        step(model, optimizer, samples(512))
        history = torch.cat([history, block(80)])  # culprit


if __name__ == "__main__":
    main()
