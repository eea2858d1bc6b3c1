# SPDX-License-Identifier: Apache-2.0
"""Proximal policy optimization over vectorized environments."""

import argparse
import contextlib
from dataclasses import dataclass, field

import torch
from nets import ActorCritic


class VectorEnv:
    """Stands for 64 games."""

    def __init__(self, count):
        self.count = count

    def step(self, actions):
        return torch.zeros(self.count, 4, 84, 84), torch.zeros(self.count), actions == 0


@dataclass
class Rollout:
    obs: list = field(default_factory=list)
    actions: list = field(default_factory=list)
    logps: list = field(default_factory=list)
    values: list = field(default_factory=list)
    rewards: list = field(default_factory=list)


class PPO:
    def __init__(self, args):
        self.args = args
        self.env = VectorEnv(64)
        self.net = ActorCritic().cuda()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=2.5e-4, eps=1e-5)
        self.archive = []

    def collect(self):
        rollout = Rollout()
        actions = torch.zeros(64, dtype=torch.long)
        guard = contextlib.nullcontext() if self.args.grad else torch.no_grad()
        with guard:
            for _ in range(self.args.horizon):
                frames, reward, _done = self.env.step(actions)
                obs = frames.to("cuda")  # culprit
                logits, value = self.net(obs)  # culprit: ppo-grad
                logp = logits.log_softmax(-1)
                actions = logits.argmax(-1).cpu()
                rollout.obs.append(obs)
                rollout.actions.append(actions)
                rollout.logps.append(logp)
                rollout.values.append(value)
                rollout.rewards.append(reward)
        return rollout

    def update(self, rollout):
        for _ in range(2):
            for obs, logp, value in zip(rollout.obs, rollout.logps, rollout.values, strict=True):
                logits, new = self.net(obs)
                ratio = (logits.log_softmax(-1) - logp.detach()).exp()
                loss = -ratio.clamp(0.8, 1.2).mean() + 0.5 * (new - value.detach()).square().mean()
                self.opt.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()

    def learn(self):
        for _ in range(self.args.iterations):
            rollout = self.collect()
            if self.args.archive:
                self.archive.append(rollout)
            self.update(rollout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--horizon", type=int, default=8)
    parser.add_argument("--archive", action="store_true")
    parser.add_argument("--grad", action="store_true")
    PPO(parser.parse_args()).learn()


if __name__ == "__main__":
    main()
