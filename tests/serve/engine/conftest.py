"""Served rankers of every kind, from tiny checkpoints."""

import importlib.util
from pathlib import Path

import pytest

from rankhouse.app.rankers import ComputeOptions
from rankhouse.app.serve.engine.rankers import open_served

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).parents[1] / "tiny_models.py")
tiny_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_models)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """The module of tiny models, with a folder."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    tiny_models.folder = tmp_path_factory.mktemp("models")
    return tiny_models


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
