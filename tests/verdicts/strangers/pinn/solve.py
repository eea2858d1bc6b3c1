# SPDX-License-Identifier: Apache-2.0
import argparse

import torch
from pde import Field, residual


class Solver:
    def __init__(self, points):
        self.points = points
        self.field = Field().cuda()
        self.optimizer = torch.optim.Adam(self.field.parameters(), lr=1e-3)
        self.curves = {"pde": [], "boundary": []}

    def sample(self):
        x = torch.rand(self.points, 1, device="cuda").mul(2).sub(1).requires_grad_()
        t = torch.rand(self.points, 1, device="cuda").requires_grad_()
        return x, t

    def boundary_loss(self):
        t = torch.rand(256, 1, device="cuda")
        edge = torch.ones(256, 1, device="cuda")
        return self.field(edge, t).square().mean() + self.field(-edge, t).square().mean()

    def closure(self):
        x, t = self.sample()
        pde = residual(self.field, x, t).square().mean()  # culprit: pinn-retain
        boundary = self.boundary_loss()
        loss = pde + boundary
        self.optimizer.zero_grad()
        loss.backward(retain_graph=True)
        self.curves["pde"].append(pde)
        self.curves["boundary"].append(boundary)
        return loss

    def solve(self, iterations):
        for _ in range(iterations):
            self.closure()
            self.optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=2048)
    parser.add_argument("--iterations", type=int, default=500)
    args = parser.parse_args()
    Solver(args.points).solve(args.iterations)
