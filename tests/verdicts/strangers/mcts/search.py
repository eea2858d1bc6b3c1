# SPDX-License-Identifier: Apache-2.0
"""Tree search with a learned model of the world."""

import torch


class Node:
    def __init__(self, state, parent=None):
        self.state, self.parent = state, parent
        self.children, self.visits, self.value = [], 0, 0.0


class Search:
    def __init__(self, world, simulations):
        self.world, self.simulations = world, simulations

    def expand(self, node, action):
        state = self.world(node.state, action)  # culprit
        child = Node(state, node)
        node.children.append(child)
        return child

    @torch.inference_mode()
    def move(self, observation):
        root = Node(self.world.encode(observation))
        leaf = root
        for number in range(self.simulations):
            leaf = self.expand(leaf if number % 4 else root, number % 6)
            node = leaf
            while node is not None:
                node.visits += 1
                node = node.parent
        return max(range(len(root.children)), key=lambda at: root.children[at].visits)
