# SPDX-License-Identifier: Apache-2.0
"""Fixed steps of Runge and Kutta; gradients go through all of them."""


def integrate(field, state, until, steps):
    width = until / steps
    for _ in range(steps):
        first = field(state)  # culprit
        second = field(state + 0.5 * width * first)  # culprit
        state = state + width * second  # culprit
    return state
