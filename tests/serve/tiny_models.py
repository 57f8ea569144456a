"""Tiny checkpoints with random weights for the service's tests, made once a folder, and texts they can read.

``python tests/serve/tiny_models.py FOLDER`` writes all of them and prints their notations: for servers that
are started as a process of their own.
"""

import importlib.util
import random
import sys
from pathlib import Path

_models = Path(__file__).parents[1] / "models" / "conftest.py"
_spec = importlib.util.spec_from_file_location("tiny_checkpoints", _models)
_checkpoints = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_checkpoints)

WORDS = _checkpoints.WORDS
KINDS = ("crossencoder", "biencoder", "monot5", "tk")


def tiny_model(kind, folder):
    """Write a tiny model of a kind into a folder, if it is not there yet; gives its notation."""
    from rankhouse.models import bundle
    from rankhouse.models.tk import TKDesign

    folder = Path(folder)
    path = folder / kind
    if not path.exists():
        import torch

        torch.manual_seed(0)
        match kind:
            case "crossencoder":
                _checkpoints.BUILDERS["wide_bert"](path)
            case "biencoder":
                _checkpoints.BUILDERS["bert_plain"](path)
            case "monot5":
                _checkpoints.BUILDERS["wide_t5"](path)
            case "tk":
                design = TKDesign(words="whitespace(lower=True)", min_count=1, width=50)
                bundle.save(
                    design.fresh([" ".join(WORDS)], seed=1), path, {"split": "words(40)", "pool": "top(2)"}
                )
            case _:
                raise ValueError(kind)
    return str(path) if kind == "tk" else f'{kind}("{path}")'


def text(rng, longest=60, shortest=1):
    """A text of words that all tiny models know."""
    return " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest)))


def long_text(rng, sentences=40):
    """A text of several sentences."""
    return "  ".join(text(rng, 14, 4).capitalize() + "." for _ in range(sentences))


if __name__ == "__main__":
    from transformers.utils import logging

    logging.disable_progress_bar()
    random.seed(0)
    for kind in KINDS:
        print(tiny_model(kind, sys.argv[1]))
