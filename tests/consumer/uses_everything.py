"""A stranger's script under strict type checking: the names of the public API and their types."""

from collections.abc import Mapping
from pathlib import Path

import rankhouse as rh

index: rh.Index = rh.Index.build([rh.Document("d1", "A lock lifts ships.")], "my.index", overwrite=True)
again: rh.Index = rh.Index.open(Path("my.index"))
answer: rh.SearchResult = index.search("lifting ships", k=5)
titles: list[str] = [hit.title for hit in answer[:3]]
ids: tuple[str, ...] = answer.doc_ids
run: rh.Run = index.retrieve({"q1": "ships"}, ["bm25", "ql(mu=1000)"], feedback="rm3", k=10)
as_dict: dict[str, dict[str, float]] = run.to_dict()
same: rh.Run = rh.Run.of(as_dict)
qrels: Mapping[str, Mapping[str, int]] = {"q1": {"d1": 1}}
value: float = rh.evaluate(run, qrels, "AP nDCG@10").means["AP"]
tested: str = rh.compare({"a": run, "b": same}, qrels, "AP", baseline="a", correction="holm").method
fused: rh.Run = rh.fuse([run, same], "rrf(k=60)")
rh.write_run(fused, "fused.run")
rh.write_qrels(qrels, "qrels.txt")
read: rh.Run = rh.read_run("fused.run")
judged: rh.Qrels = rh.read_qrels("qrels.txt")
documents: list[rh.Document] = list(rh.read_documents(["corpus.jsonl"]))
queries: list[rh.Query] = rh.read_queries("queries.tsv")


class Length:
    """A ranker of one's own needs nothing but ``score``."""

    scale = "score"
    fingerprint = "length"

    def score(self, pairs: list[rh.Pair]) -> object:
        """Score by length."""
        return [len(pair.passage.text) for pair in pairs]


def neural() -> None:
    """Calls that need torch, or files that are not there; checked for types only."""
    ranker = rh.open_ranker('crossencoder("DIR")', precision="fp32")
    best: rh.SearchResult = ranker.rank("who?", ["One text.", rh.Document("d", "Another.")], k=1)
    better: rh.Run = rh.rerank(ranker, run, {"q1": "ships"}, index, split="sentences(10, 5)", pool="max")
    taught = rh.train("knrm", index, out="out", queries=queries, qrels=judged, settings={"epochs": 2})
    labels = rh.label("judged('qrels.txt')", run, queries, index, out="pairs.jsonl")
    print(best, better, taught.fingerprint, labels.relevant)
    why = rh.explain(
        ranker, "who?", "d1", index=index, against="d2", split="sentences(10, 5)", first_stage=run
    )
    print(why.score, why.sentence(), [part.name for part in why.parts], why.to_dict(), why.to_markdown())
    rh.explain("bm25", "who?", top=10, index="my.index").save(Path("why.html"))
    # A misspelt name is an error; were it none, a type checker would find this comment needless.
    print(rh.opne_ranker)  # type: ignore[attr-defined]


try:
    rh.read_run("absent.run")
except rh.RankhouseError as error:
    print(error)
