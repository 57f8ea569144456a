"""A small collection with vectors, queries and tiny checkpoints, for systems and for the commands alike."""

import importlib.util
import json
import random
import warnings
from pathlib import Path

import pytest

import rankhouse as rh

_models = Path(__file__).parents[1] / "serve" / "tiny_models.py"
_spec = importlib.util.spec_from_file_location("tiny_models_of_systems", _models)
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)


class World:
    """Folder with ``corpus.jsonl``, ``queries.tsv``, ``my.index``; the notation of each tiny ranker."""

    def __init__(self, folder, rankers):
        self.folder, self.rankers = folder, rankers
        self.index, self.queries = rh.Index.open(folder / "my.index"), rh.read_queries(folder / "queries.tsv")


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """The world; nobody changes it."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    folder, rng = tmp_path_factory.mktemp("systems"), random.Random(5)
    documents = [{"id": f"d{n}", "text": tiny.long_text(rng, rng.randint(1, 8))} for n in range(60)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(one) + "\n" for one in documents))
    (folder / "queries.tsv").write_text("".join(f"q{n}\t{tiny.text(rng, 4, 2)}\n" for n in range(4)))
    index = rh.Index.build(documents, folder / "my.index", workers=1)
    rankers = {kind: tiny.tiny_model(kind, folder) for kind in ("crossencoder", "biencoder", "tk")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rh.RankhouseWarning)
        encoder = rh.open_ranker(rankers["biencoder"], precision="fp32", device="cpu", threads=1)
        index.encode(encoder, split="words(20)", structure="flat")
    return World(folder, rankers)


_cli = importlib.util.spec_from_file_location(
    "world_of_commands", Path(__file__).parents[1] / "cli" / "conftest.py"
)
_module = importlib.util.module_from_spec(_cli)
_cli.loader.exec_module(_module)
files = _module.files
