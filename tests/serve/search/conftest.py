"""A small collection with vectors and tiny rankers: served, and at the command line's hand."""

import json
import sys
import threading
import warnings
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from rankhouse.api.index import Index
from rankhouse.cli.main import main
from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Query
from rankhouse.models import bundle
from rankhouse.models.tk import TKDesign
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.engine.waiting import Recent
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.systems.rankers import ComputeOptions, open_ranker

COMPUTE = ComputeOptions("fp32", "cpu", 1)
WORDS = (
    "pilots board ships and steer them into the harbour the moon pulls sea water twice a day lock lifts "
    "between two levels gates one is open while closed grain prices rose when harvest was poor carried"
)
QUERIES = {
    "q1": "pilots steer ships",
    "q2": "high water in the harbour",
    "q3": "the of",
    "q4": "grain prices",
}


def documents():
    """Sixty documents of a few sentences, some long, one blank, one with nothing but a title."""
    draw = np.random.default_rng(7)
    for number in range(60):
        sentences = [
            " ".join(draw.choice(WORDS.split(), draw.integers(4, 12))).capitalize() + "."
            for _ in range(draw.integers(1, 30 if number % 7 == 0 else 5))
        ]
        title = f"About {draw.choice(WORDS.split())}" if number % 3 == 0 else ""
        yield {"id": f"d{number:02}", "title": title, "text": " ".join(sentences)}
    yield {"id": "blank", "text": " "}
    yield {"id": "titled", "title": "Ships and pilots", "text": ""}


def tk(folder, seed=0):
    """Write a TK with weights of about the size that training gives."""
    texts = [document["text"] for document in documents()]
    model = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24).fresh(texts)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.head.parameters():
            weight.uniform_(-0.5, 1)
    bundle.save(model, folder)
    return folder


@dataclass
class World:
    """Where everything lies."""

    folder: Path
    specs: dict[str, str]
    cpu: tuple[str, ...] = ("--precision", "fp32", "--device", "cpu", "--threads", "1")
    queries: list[Query] = field(default_factory=lambda: [Query(*pair) for pair in QUERIES.items()])

    @property
    def index(self):
        """The index's folder."""
        return self.folder / "my.index"


@pytest.fixture(scope="session")
def world(tmp_path_factory, bert):
    """The collection, encoded by the bi-encoder, with queries and checkpoints; nobody changes it."""
    folder = tmp_path_factory.mktemp("world")
    index = Index.build(documents(), folder / "my.index", workers=1)
    cross = bert("BertForSequenceClassification", num_labels=1)
    specs = {
        "cross": f"crossencoder({str(cross)!r})",
        "bi": f"biencoder({str(bert('BertModel'))!r})",
        "tk": str(tk(folder / "tk")),
    }
    with pytest.warns(RankhouseWarning, match="1 of 62 documents have no text"):
        index.encode(open_ranker(specs["bi"], COMPUTE), split="words(20)")
    (folder / "queries.tsv").write_text("".join(f"{q}\t{text}\n" for q, text in QUERIES.items()))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents()))
    return World(folder, specs)


@dataclass
class Parts:
    """The part of a service that searching needs."""

    catalogue: Catalogue


@pytest.fixture(scope="session")
def rankers(world):
    """The rankers, each in its thread."""
    opened = {name: open_served(name, spec, COMPUTE) for name, spec in world.specs.items()}
    yield opened
    for ranker in opened.values():
        ranker.close()


@pytest.fixture
def service(world, rankers):
    """A service of the collection and its rankers."""
    return Parts(Catalogue({"harbour": world.index}, rankers))


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Call the program in tmp_path, in this process; what it writes to standard output."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rankhouse", *map(str, arguments)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert not ended.value.code, said.err
        return said.out

    return call


@pytest.fixture
def busy():
    """Keep a ranker's thread from anything else while a block runs."""

    @contextmanager
    def held(ranker):
        done, begun = threading.Event(), threading.Event()

        def wait():
            begun.set()
            done.wait(600)

        ranker.asked = Recent(256)  # vectors of questions that other tests asked are forgotten
        waiting = ranker.call(wait)
        begun.wait(120)
        try:
            yield waiting
        finally:
            done.set()
        waiting.result()

    return held


@pytest.fixture
def counting(monkeypatch):
    """From a ranker to the count of what its model computes from now on."""

    class Counts:
        rows = 0

        def batch(self, model, rows, tokens, lost, seconds):
            self.rows += rows

        def job(self, model, times):
            pass

    def counted(ranker):
        counts = Counts()
        monkeypatch.setattr(ranker.worker, "observer", counts)
        return counts

    return counted
