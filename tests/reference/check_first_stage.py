"""Hold the first stage, passages and pools to the reference vectors: file name -> largest errors.

``lucene_golden.json`` needs the files it was made from beside it: corpus.jsonl and queries.tsv. Where ids,
tokens or rankings differ, which no tolerance covers, the error is infinite.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from rankhouse.core import notation
from rankhouse.core.nouns import Document
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, Retriever
from rankhouse.index.lexical.segment import DECODED, codes_of
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.ranking.fuse import linear
from rankhouse.ranking.pool import POOLS, weighted
from rankhouse.text.analyze import ANALYZERS
from rankhouse.text.split import Sentences, Windows

Errors = tuple[float, float]
VARIANTS = {
    "bm25_exact_length": 'bm25(lengths="exact")',
    "dirichlet_sum_log_p(mu=1000)": 'ql(1000, "indri", "sum")',
    "dirichlet_sum_log_p(mu=2500)": 'ql(2500, "indri", "sum")',
    "dirichlet_mean_log_p(mu=2500)": 'ql(2500, "indri")',
}


class Compared:
    """Collects the largest errors; relative ones against 1 or the number itself, whichever is larger."""

    def __init__(self) -> None:
        self.absolute = self.relative = 0.0

    def add(self, ours: object, theirs: object) -> None:
        gap = np.abs(np.asarray(ours, np.float64) - np.asarray(theirs, np.float64))
        size = np.maximum(1.0, np.abs(np.asarray(theirs, np.float64)))
        self.absolute = max(self.absolute, float(gap.max(initial=0)))
        self.relative = max(self.relative, float((gap / size).max(initial=0)))

    def same(self, ours: object, theirs: object) -> None:
        if ours != theirs:
            self.absolute = self.relative = math.inf

    @property
    def errors(self) -> Errors:
        return self.absolute, self.relative


def search_of(said: str) -> LexicalOptions:
    """Translate the reference's name of a model into our notation."""
    model, _, feedback = said.partition("+")
    for theirs, ours in (("bm25accurate(", 'bm25(lengths="exact", '), ("qljm", "jm"), ("qld", "ql")):
        model = model.replace(theirs, ours)
    if feedback:
        given = dict(re.findall(r"(fbTerms|fbDocs|originalQueryWeight)=([\d.]+)", feedback))
        plain = ", filter=False" if "noTermFilter" in feedback else ""
        feedback = f"rm3({given['fbTerms']}, {given['fbDocs']}, {given['originalQueryWeight']}{plain})"
    return LexicalOptions(model, feedback)


def _index(path: Path, scratch: str) -> Index:
    build(read_documents([path.with_name("corpus.jsonl")]), Path(scratch) / "index", BuildOptions(workers=1))
    return Index.open(Path(scratch) / "index")


def lucene(path: Path) -> Errors:
    """Statistics, tokens, scores and feedback weights of real Lucene."""
    golden, found = json.loads(path.read_text()), Compared()
    with tempfile.TemporaryDirectory() as scratch:
        index = _index(path, scratch)
        collection = index.collection
        theirs = (golden["maxDoc"], golden["docCount_with_field"], golden["sumTotalTermFreq"])
        found.same((collection.documents, collection.with_terms, collection.tokens), theirs)
        found.same({t: list(index.counts(t)) for t in golden["terms_df_cf"]}, golden["terms_df_cf"])
        for said in golden["docs"]:
            found.same(index.analyzer(index.documents[said["docid"]].full_text), said["tokens"])
        for run in golden["runs"]:
            retriever = Retriever(index, search_of(run["model"]))
            weights = retriever.terms(run["query"])
            if retriever.feedback is not None:
                first = retriever.hits(weights, retriever.feedback.docs)
                weights = retriever.expand(weights, first, retriever.feedback).weights
                found.same(weights.keys(), run["feedback_query"].keys())
                # Weights have a tolerance of 1e-7 where scores have 2e-6.
                pairs = [(weights.get(t, 0.0), w) for t, w in run["feedback_query"].items()]
                found.add([20 * ours for ours, _ in pairs], [20 * w for _, w in pairs])
            hits = retriever.hits(weights, 1000)
            found.same(index.ids(hits.rows), [doc_id for doc_id, _ in run["hits"]])
            if len(hits.rows) == len(run["hits"]):
                found.add(hits.scores, [score for _, score in run["hits"]])
    return found.errors


def variants(path: Path) -> Errors:
    """Textbook forms, computed by others in float64."""
    golden, found = json.loads(path.read_text())["variants"], Compared()
    with tempfile.TemporaryDirectory() as scratch:
        index = _index(path, scratch)
        texts = {query.id: query.text for query in read_queries(path.with_name("queries.tsv"))}
        for query_id, forms in golden.items():
            for name, hits in forms.items():
                model = next((m for start, m in VARIANTS.items() if name.startswith(start)), None)
                if model is None:
                    continue
                retriever = Retriever(index, LexicalOptions(model))
                ours = retriever.hits(retriever.terms(texts[query_id]), 1000)
                scores = dict(zip(index.ids(ours.rows), ours.scores.tolist(), strict=True))
                found.same(scores.keys(), dict(hits).keys())
                found.add([scores.get(d, math.inf) for d, _ in hits], [s for _, s in hits])
    return found.errors


def analyzers(path: Path) -> Errors:
    """Tokens of Anserini's English and tweet analysis (the Krovetz stemmer is not offered)."""
    golden, found = json.loads(path.read_text()), Compared()
    for name, rows in golden.items():
        for row in rows if isinstance(rows, list) and rows and isinstance(rows[0], list) else ():
            if "porter" in name or "Tweet" in name:
                analyzer = ANALYZERS["tweet" if "Tweet" in name else "english"]()
                found.same(analyzer(row[0]), row[1])
    return found.errors


def length_codec(path: Path) -> Errors:
    """Lucene's one-byte lengths."""
    table, found = json.loads(path.read_text()), Compared()
    found.add(DECODED[codes_of(np.arange(len(table), dtype=np.int32))], table)
    return found.errors


def aggregation(path: Path) -> Errors:
    """Passages and pools of pygaggle, Dai & Callan, birch and samCNN."""
    golden, found = json.loads(path.read_text()), Compared()
    _windows(golden["dai_callan_get_passages"], found)
    _segments(golden["pygaggle_segments"], found)
    _birch(golden["birch"], found)
    _interpolation(golden["samcnn_interpolation"], found)
    return found.errors


def _windows(cases: list[dict[str, object]], found: Compared) -> None:
    """Spans of words, but for those that are suffixes of their predecessor, which are a defect there."""
    for case in cases:
        text = " ".join(f"w{i}" for i in range(case["n_words"]))
        stride = case["plen"] - case["overlap"]
        passages = Windows(case["plen"], stride, limit=10_000)(Document("d", text))
        numbers = [[int(w[1:]) for w in passage.text.split()] for passage in passages]
        ours = [[n[0], n[-1] + 1] for n in numbers if n]
        theirs, end = [], -1
        for span in case["spans"]:
            if span[1] > end and span[1] > span[0]:
                theirs.append(span)
                end = span[1]
        found.same(ours, theirs)


def _segments(golden: dict[str, object], found: Compared) -> None:
    for case in golden["cases"]:
        text = " ".join(f"Sentence number {i} ends here." for i in range(case["n_sentences"]))
        splitter = Sentences(golden["size"], golden["stride"], find=lambda t: re.findall(r"[^.]+\.", t))
        passages = splitter(Document("d", text, case["title"]))
        found.same([p.text.strip() for p in passages], case["segments"])
    scores, ends = golden["aggregate"]["segment_scores"], golden["aggregate"]["doc_end_indexes"]
    for name in ("max", "mean"):
        pool = notation.make(name, POOLS, "pool")
        ours = [pool(scores[a:b]) for a, b in pairwise(ends)]
        found.add(ours, golden["aggregate"][name])


def _birch(golden: dict[str, object], found: Compared) -> None:
    for case in golden["cases"]:
        pool = weighted(*[1.0, case["beta"], case["gamma"]][: case["topk"]])
        pooled = {
            q: {d: pool(scores) for d, scores in docs.items()}
            for q, docs in golden["sentence_scores"].items()
        }
        fused = linear("raw")(
            [Run.from_rankings(golden["doc_scores"]), Run.from_rankings(pooled)],
            [case["alpha"], 1 - case["alpha"]],
        )
        ranked = {(q, d): s for q in fused for d, s in zip(*fused[q], strict=True)}
        found.add([ranked[q, d] for q, d, _, _ in case["ranking"]], [s for *_, s in case["ranking"]])


def _interpolation(golden: dict[str, object], found: Compared) -> None:
    model = Run.of((str(q), str(d), math.exp(s)) for q, d, s in golden["model_logprob"])
    baseline = Run.of((str(q), str(d), s) for q, d, s in golden["baseline_ql_log"])
    for alpha, rows in golden["alphas"].items():
        fused = linear("raw")([model, baseline], [1.0, float(alpha)])
        ranked = {(q, d): s for q in fused for d, s in zip(*fused[q], strict=True)}
        found.add([ranked[str(q), str(d)] for q, d, _ in rows], [s for *_, s in rows])


KINDS: dict[str, Callable[[Path], Errors]] = {
    "lucene_golden*": lucene,
    "analyzers_golden*": analyzers,
    "smallfloat_length_codec*": length_codec,
    "formula_variants*": variants,
    "aggregation_golden*": aggregation,
}
"""Name pattern -> check; the first that fits counts."""
