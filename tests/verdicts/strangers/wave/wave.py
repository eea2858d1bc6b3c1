# SPDX-License-Identifier: Apache-2.0
"""A wave on a square; the film is made when the run has ended."""

import argparse

import torch


class Wave:
    def __init__(self, size, speed=0.4):
        self.now = torch.zeros(size, size, device="cuda")
        self.before = self.now.clone()
        self.now[size // 2, size // 2] = 1.0
        self.factor = speed * speed

    def laplacian(self, u):
        rows = torch.roll(u, 1, 0) + torch.roll(u, -1, 0)  # culprit: wave-grid
        return rows + torch.roll(u, 1, 1) + torch.roll(u, -1, 1) - 4 * u  # culprit: wave-grid

    def advance(self):
        change = self.factor * self.laplacian(self.now)  # culprit: wave-grid
        after = 2 * self.now - self.before + change  # culprit: wave-grid
        self.before, self.now = self.now, after
        return after


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--every", type=int, default=4)
    args = parser.parse_args()
    wave = Wave(args.size)
    film = []
    for number in range(args.steps):
        field = wave.advance()
        if number % args.every == 0:
            film.append(field.clamp(-1, 1))  # culprit: wave-film, wave-film-off
    print(torch.stack(film).shape)


if __name__ == "__main__":
    main()
