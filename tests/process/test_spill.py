"""Live memory goes to the host and comes back, and nothing about it changes."""

from __future__ import annotations

import unittest

from machine import ProcessTest


class Spill(ProcessTest):
    pass


if __name__ == "__main__":
    unittest.main()
