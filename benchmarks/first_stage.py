"""First stage: build and search speed, disk and memory, beside other engines in one run.

Every engine runs in a process of its own, on one core, over the same texts and queries, k = 1000 (--k);
rounds alternate between the engines, and the medians are printed with their ratio to bm25s. Times are
processor seconds of the process: with one thread they are wall time on an idle machine. Latencies are of
queries asked one by one of an engine just opened, BM25, the first and second time each is asked; the least
of the rounds, then median, p90, p99.

    python benchmarks/first_stage.py                      # 100k and 1M synthetic documents
    python benchmarks/first_stage.py --documents 10000000 --engines rankhouse --rounds 1
    python benchmarks/first_stage.py --corpus DIR         # a folder with corpus.jsonl.gz

Synthetic documents: words w0, w1 ... drawn from a Zipf law (exponent 1.07) over half a million words, lengths
lognormal around 50. Queries: 2 to 6 distinct words of a random document, the 50 most frequent left out. All
engines split at white space there. On a real corpus each uses its English analysis: ours is Lucene's; bm25s
gets its own stop words and Snowball stems; tantivy its "en_stem". Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

K = int(os.environ.get("FIRST_STAGE_K", "1000"))  # --k, for the engines' own processes
QUERIES = 1000


def write_synthetic(folder: Path, documents: int, seed: int = 7) -> None:
    """Write corpus.tsv and queries.tsv of Zipf words."""
    import numpy as np

    rng = np.random.default_rng(seed)
    words = 500_000
    share = 1 / np.arange(1, words + 1) ** 1.07
    edges = np.cumsum(share / share.sum())
    names = np.array([f"w{i}" for i in range(words)], dtype=object)
    chosen: list[str] = []
    wanted = set(rng.choice(documents, min(QUERIES, documents), replace=False).tolist())
    with (folder / "corpus.tsv").open("w") as out:
        for start in range(0, documents, 10_000):
            size = min(10_000, documents - start)
            lengths = np.clip(rng.lognormal(np.log(45), 0.5, size), 3, 1000).astype(int)
            drawn = np.minimum(np.searchsorted(edges, rng.random(lengths.sum())), words - 1)
            ends = np.cumsum(lengths)
            for i in range(size):
                row = drawn[ends[i] - lengths[i] : ends[i]]
                out.write(f"d{start + i:08d}\t{' '.join(names[row])}\n")
                if start + i in wanted:
                    rare = np.unique(row[row >= 50])
                    rng.shuffle(rare)
                    chosen.append(" ".join(names[rare[: rng.integers(2, 7)]]) or "w100")
    lines = "".join(f"q{i}\t{text}\n" for i, text in enumerate(chosen))
    (folder / "queries.tsv").write_text(lines)


def write_real(folder: Path, corpus: Path) -> None:
    """Copy a collection's texts as TSV; its titles are the queries."""
    path = next(corpus.glob("corpus.jsonl*"))
    titles = []
    with (
        (gzip.open if path.suffix == ".gz" else open)(path, "rt") as lines,
        (folder / "corpus.tsv").open("w") as out,
    ):
        for line in lines:
            record = json.loads(line)
            text = " ".join(f"{record.get('title', '')} {record['text']}".split())
            out.write(f"{record['id']}\t{text}\n")
            titles.append(record.get("title") or " ".join(text.split()[:5]))
    step = max(1, len(titles) // QUERIES)
    lines_out = "".join(f"q{i}\t{' '.join(t.split())}\n" for i, t in enumerate(titles[::step][:QUERIES]))
    (folder / "queries.tsv").write_text(lines_out)


def read_tsv(path: Path) -> tuple[list[str], list[str]]:
    """Read ids and texts."""
    rows = [line.rstrip("\n").split("\t", 1) for line in path.open()]
    return [row[0] for row in rows], [row[1] for row in rows]


def peak_megabytes() -> float:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def latencies(ask: Callable[[str], object], texts: list[str]) -> dict[str, list[float]]:
    """Ask queries one by one, twice; return the microseconds of processor time each takes either time."""
    ask(texts[0])
    times = dict[str, list[float]]()
    for name in ("first_us", "us"):
        times[name] = []
        for text in texts:
            started = time.process_time_ns()
            ask(text)
            times[name].append((time.process_time_ns() - started) / 1000)
    return times


def bytes_under(folder: Path) -> int:
    """Size of a folder's files."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def build_rankhouse(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Build our index, documents stored as users get it."""
    from rankhouse.index.lexical.build import BuildOptions, build
    from rankhouse.io.corpora import read_documents

    started = time.process_time()
    options = BuildOptions("english" if english else "whitespace", workers=1)
    report = build(read_documents([folder / "corpus.tsv"]), out, options)
    seconds = time.process_time() - started
    store = sum(p.stat().st_size for p in out.rglob("store.bin"))
    return {"documents": report.documents, "build_s": seconds, "index_bytes": bytes_under(out) - store}


def search_rankhouse(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Search our index with every model."""
    del english
    from rankhouse.core.nouns import Query
    from rankhouse.index.index import Index
    from rankhouse.index.lexical.search import LexicalOptions, Retriever, retrieve
    from rankhouse.io.corpora import read_queries

    started = time.process_time()
    index = Index.open(out)
    opened = time.process_time() - started
    queries = read_queries(folder / "queries.tsv")
    found: dict[str, Any] = {"open_ms": opened * 1000}
    for name, model, feedback in (("bm25", "bm25", ""), ("ql", "ql", ""), ("rm3", "bm25", "rm3")):
        search = LexicalOptions(model, feedback, K, threads=1)
        retrieve(index, queries[:50], search)
        some = queries if name != "rm3" else queries[: len(queries) // 4]
        started = time.process_time()
        run = retrieve(index, some, search)
        for ranking in run.values():  # ids are read when asked for, which belongs to the work
            assert len(ranking.doc_ids) == len(ranking.scores)
        found[name] = len(some) / (time.process_time() - started)
        if name == "bm25":
            found["top"] = {q: list(run[q].doc_ids[:10]) for q in list(run)[:100]}
            del run, index, ranking
            gc.collect()  # pages mapped twice would be counted twice
            index = Index.open(out)
            rank, texts = Retriever(index, search).ranking, [query.text for query in queries]
            found |= latencies(lambda text, rank=rank: rank(Query("q", text)).doc_ids, texts)
            found["bm25_mb"] = peak_megabytes()  # RM3 maps what documents contain, besides
    return found


def build_bm25s(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Build bm25s, scores of Lucene's form."""
    import bm25s

    started = time.process_time()
    ids, texts = read_tsv(folder / "corpus.tsv")
    tokens = bm25s.tokenize(texts, **_bm25s_options(english), show_progress=False)
    index = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend="numba")
    index.index(tokens, show_progress=False)
    index.save(str(out), show_progress=False)
    seconds = time.process_time() - started
    (out / "ids.json").write_text(json.dumps(ids))
    return {"documents": len(ids), "build_s": seconds, "index_bytes": bytes_under(out)}


def _bm25s_options(english: bool) -> dict[str, Any]:
    if english:
        import Stemmer

        return {"stopwords": "en", "stemmer": Stemmer.Stemmer("english")}
    return {"stopwords": None, "token_pattern": r"\S+"}


def search_bm25s(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Search bm25s with its numba backend, ids looked up as a user needs them."""
    import bm25s

    started = time.process_time()
    index = bm25s.BM25.load(str(out), backend="numba")
    opened = time.process_time() - started
    ids = json.loads((out / "ids.json").read_text())
    names, texts = read_tsv(folder / "queries.tsv")

    def ask(some: list[str]) -> list[list[str]]:
        tokens = bm25s.tokenize(some, **_bm25s_options(english), show_progress=False)
        rows, _ = index.retrieve(
            tokens, k=min(K, len(ids)), n_threads=1, show_progress=False, backend_selection="numba"
        )
        return [[ids[i] for i in row] for row in rows.tolist()]

    ask(texts[:50])
    started = time.process_time()
    found = ask(texts)
    rate = len(texts) / (time.process_time() - started)
    top = {q: row[:10] for q, row in list(zip(names, found, strict=True))[:100]}
    us = latencies(lambda text: ask([text]), texts)
    return {"open_ms": opened * 1000, "bm25": rate, "top": top, **us}


def build_tantivy(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Build tantivy with one writer thread."""
    import tantivy

    started = time.process_time()
    out.mkdir(parents=True)
    index = tantivy.Index(_tantivy_schema(english), path=str(out))
    writer = index.writer(heap_size=300_000_000, num_threads=1)
    count = 0
    for line in (folder / "corpus.tsv").open():
        name, text = line.rstrip("\n").split("\t", 1)
        writer.add_document(tantivy.Document(id=name, text=text))
        count += 1
    writer.commit()
    writer.wait_merging_threads()
    return {"documents": count, "build_s": time.process_time() - started, "index_bytes": bytes_under(out)}


def _tantivy_schema(english: bool) -> object:
    import tantivy

    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    name = "en_stem" if english else "whitespace"
    builder.add_text_field("text", stored=False, tokenizer_name=name, index_option="freq")
    return builder.build()


def search_tantivy(folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Search tantivy (its k1 and b are fixed at 1.2 and .75), ids fetched."""
    import tantivy

    started = time.process_time()
    index = tantivy.Index(_tantivy_schema(english), path=str(out))
    index.reload()
    searcher = index.searcher()
    opened = time.process_time() - started
    _, texts = read_tsv(folder / "queries.tsv")

    def ask(some: list[str]) -> None:
        for text in some:
            plain = "".join(c if c.isalnum() else " " for c in text).lower()  # AND and OR are words here
            query = index.parse_query(plain, ["text"])
            for _, address in searcher.search(query, K).hits:
                searcher.doc(address)["id"]

    ask(texts[:50])
    started = time.process_time()
    ask(texts)
    rate = len(texts) / (time.process_time() - started)
    return {"open_ms": opened * 1000, "bm25": rate, **latencies(lambda text: ask([text]), texts)}


ENGINES = {
    "rankhouse": ("rankhouse", build_rankhouse, search_rankhouse),
    "bm25s": ("bm25s", build_bm25s, search_bm25s),
    "tantivy": ("tantivy", build_tantivy, search_tantivy),
}


def one_core() -> None:
    """Keep this process on one core and its libraries on one thread."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def child(engine: str, job: str, folder: Path, out: Path, *, english: bool) -> None:
    """Do one job and print its figures as JSON."""
    one_core()
    work = ENGINES[engine][1 if job == "build" else 2]
    figures = work(folder, out, english=english)
    print(json.dumps(figures | {"peak_mb": peak_megabytes()}))


def ask_child(engine: str, job: str, folder: Path, out: Path, *, english: bool) -> dict[str, Any]:
    """Run a job in a process of its own."""
    command = [sys.executable, __file__, "--child", engine, job, str(folder), str(out), str(int(english))]
    limits = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | limits)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def installed(engine: str) -> bool:
    """Tell whether an engine's package is there."""
    from importlib.util import find_spec

    needed = [ENGINES[engine][0]] + (["numba"] if engine == "bm25s" else [])
    return all(find_spec(name) is not None for name in needed)


def measure(folder: Path, engines: list[str], rounds: int, *, english: bool) -> dict[str, dict[str, Any]]:
    """Build and search with every engine, alternating; medians over the rounds."""
    figures: dict[str, list[dict[str, Any]]] = {engine: [] for engine in engines}
    for _ in range(rounds):
        for engine in engines:
            out = folder / f"index-{engine}"
            shutil.rmtree(out, ignore_errors=True)
            built = ask_child(engine, "build", folder, out, english=english)
            built["build_mb"] = built.pop("peak_mb")
            found = ask_child(engine, "search", folder, out, english=english)
            figures[engine].append(built | found)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    middle: dict[str, dict[str, Any]] = {}
    for engine, rows in figures.items():
        numbers = [key for key, value in rows[0].items() if isinstance(value, int | float)]
        middle[engine] = {key: statistics.median(row[key] for row in rows) for key in numbers}
        middle[engine]["top"] = rows[0].get("top")
        for name in ("first_us", "us"):
            middle[engine][name] = sorted(map(min, zip(*(row[name] for row in rows), strict=True)))
    return middle


def show(title: str, figures: dict[str, dict[str, Any]]) -> None:
    """Print the table of one collection."""
    print(f"\n{title}")
    print(f"{'engine':<12}{'docs/s':>10}{'index MB':>10}{'build MB':>10}{'open ms':>9}", end="")
    print(f"{'BM25 q/s':>10}{'QL q/s':>9}{'RM3 q/s':>9}{'BM25 MB':>10}{'all MB':>9}")
    for engine, f in figures.items():
        print(f"{engine:<12}{f['documents'] / f['build_s']:>10,.0f}{f['index_bytes'] / 1e6:>10,.0f}", end="")
        print(f"{f['build_mb']:>10,.0f}{f['open_ms']:>9,.0f}{f['bm25']:>10,.0f}", end="")
        rest = [f"{f[name]:,.0f}" if name in f else "-" for name in ("ql", "rm3")]
        print(f"{rest[0]:>9}{rest[1]:>9}{f.get('bm25_mb', f['peak_mb']):>10,.0f}{f['peak_mb']:>9,.0f}")
    for name, when in (("first_us", "first time"), ("us", "second time")):
        print(f"\n{when:<12}{'BM25 µs: median':>16}{'p90':>8}{'p99':>8}")
        for engine, f in figures.items():
            middle, high, highest = (f[name][int(share * (len(f[name]) - 1))] for share in (0.5, 0.9, 0.99))
            print(f"{engine:<12}{middle:>16,.0f}{high:>8,.0f}{highest:>8,.0f}")
    ours, peer = figures.get("rankhouse"), figures.get("bm25s")
    if ours and peer:
        print(
            f"rankhouse / bm25s with numba: queries/s {ours['bm25'] / peer['bm25']:.2f}, build time "
            f"{ours['build_s'] / peer['build_s']:.2f}, build memory {ours['build_mb'] / peer['build_mb']:.2f}"
        )
        both = [(ours["top"][q], peer["top"][q]) for q in ours["top"] if peer["top"].get(q)]
        same = [len(set(one) & set(other)) / 10 for one, other in both]
        print(f"agreement of the first ten (100 queries): {sum(same) / max(1, len(same)):.3f}")


def main() -> None:
    """Read the arguments and measure."""
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        engine, job, folder, out, english = sys.argv[2:]
        child(engine, job, Path(folder), Path(out), english=english == "1")
        return
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--documents", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--corpus", type=Path, nargs="*", default=[])
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--k", type=int, default=K, help="hits of each query")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="where corpora and indexes go")
    options = parser.parse_args()
    os.environ["FIRST_STAGE_K"] = str(options.k)
    engines = [engine for engine in options.engines if installed(engine)]
    for absent in set(options.engines) - set(engines):
        print(f"{absent} is not installed: left out", file=sys.stderr)
    jobs = [(f"{n:,} synthetic documents", n) for n in (options.documents if not options.corpus else [])]
    jobs += [(f"{path}", path) for path in options.corpus]
    for title, what in jobs:
        with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
            folder = Path(scratch)
            is_real = isinstance(what, Path)
            (write_real if is_real else write_synthetic)(folder, what)
            show(title, measure(folder, engines, options.rounds, english=is_real))


if __name__ == "__main__":
    main()
