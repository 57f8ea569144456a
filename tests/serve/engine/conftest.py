"""Served rankers of every kind, from tiny checkpoints."""

import pytest

from rankhouse.serve.engine.served import open_served
from rankhouse.systems.rankers import ComputeOptions


@pytest.fixture(scope="session")
def served(tiny):
    """Open a kind of ranker once, to be served; gives the same one to every test."""
    opened = {}

    def open_one(kind):
        if kind not in opened:
            spec = tiny.tiny_model(kind, tiny.folder)
            opened[kind] = open_served(kind, spec, ComputeOptions("fp32", "cpu", 2))
        return opened[kind]

    yield open_one
    for one in opened.values():
        one.close()
