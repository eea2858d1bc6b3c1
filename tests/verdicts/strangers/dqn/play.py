# SPDX-License-Identifier: Apache-2.0
"""Deep Q learning on a pretended Atari game."""

import argparse
import random

import torch
from agent import Agent
from buffer import ReplayBuffer


class Game:
    """Gives frames of 128 x 128; an episode has 200 of them."""

    def __init__(self):
        self.left = 0

    def reset(self):
        self.left = 200
        return torch.zeros(4, 128, 128)

    def step(self, action):
        self.left -= 1
        return torch.zeros(4, 128, 128), float(action == 1), self.left == 0


def preprocess(frames):
    return frames.to("cuda").div(255.0)  # culprit


def run(args):
    random.seed(1)
    game = Game()
    agent = Agent(ReplayBuffer(args.capacity))
    seen = 0
    while seen < args.frames:
        state, done = preprocess(game.reset()), False
        while not done:
            action = agent.act(state)
            frames, reward, done = game.step(action)
            following = preprocess(frames)  # culprit
            agent.buffer.push(state, action, reward, following)
            state = following
            seen += 1
            if len(agent.buffer) >= 64 and seen % 8 == 0:
                agent.learn()
            if seen % 500 == 0:
                agent.sync()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--capacity", type=int, default=100_000)
    parser.add_argument("--frames", type=int, default=6000)
    run(parser.parse_args())
