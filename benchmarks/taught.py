"""Students taught without judgements (``rankhouse adapt``), against BM25 and the teacher.

    python benchmarks/light_rankers.py prepare ../shared/data WORK --data nfcorpus scifact wikiqa trecqa
    python benchmarks/taught.py dl20 ../shared/data WORK
    python benchmarks/taught.py adapt WORK MINILM [--data dl20 nfcorpus ...] [--steps 2000] [--name taught]
    python benchmarks/taught.py table WORK MINILM [--data ...] [--name taught]
    python benchmarks/taught.py against WORK MINILM --name taught --other lists [--data ...]
    python benchmarks/taught.py encoder ../shared/data WORK [--data ...] [--steps 300] [--seeds 0 1 2]
    python benchmarks/taught.py encoders ../shared/data WORK [--data ...] [--seeds ...] [--against NAME]
    python benchmarks/taught.py teachers ../shared/data WORK [--data ...]
    python benchmarks/taught.py guards ../shared/data WORK [--data ...] [--seeds ...] --name queries
    python benchmarks/taught.py parts ../shared/data WORK [--data dl20 ...] [--minutes 20]

``dl20`` prepares TREC DL 2020 passages: the given BM25 run is reranked, and grades from 2 up count for AP.
``adapt`` runs the command a person would type; test questions are kept apart, and their judgements serve
reports only. MINILM is a folder of sentence-transformers/all-MiniLM-L6-v2. One seed; a folder that was
finished is not computed again. ``table`` reranks the test run, 100 documents a query, alone and joined with
BM25 by the weight that ``adapt`` chose, and tests against BM25 (randomization, Holm). ``against`` compares
the students of two names, each alone, joined as its ``adapt`` chose, and joined by the same weights.

``encoder`` teaches all-MiniLM (``--encoder``) what the sum of BM25 and all-MiniLM finds, encodes the
documents again, and writes what searching the whole index finds: BM25, the encoder untaught and taught, and
the sum with either. ``--people`` learns from the training questions of the collection besides, without their
judgements. Test questions and judgements serve the table only, which ``encoders`` prints: each question's
mean over the seeds, randomization tests against the untaught encoder and the untaught sum, Holm's correction
over collections; and what the weights that ``adapt`` chose lose in the sum, beside the best of eleven.
``--after NAME`` begins another round: the student is what NAME taught, its teacher the sum with that.
``--tokens`` teaches by BM25 and the encoder's vectors of tokens instead: the first 200 that the sum finds are
reread in passages of 100 words, whose token vectors the index keeps. With ``--against NAME``, ``encoders``
compares with what NAME taught, each question's mean over the same seeds, in place of the untaught encoder.
``teachers`` compares these two sums themselves, of which ``encoder --tokens`` wrote the runs (with nothing
behind ``--seeds``, nothing else).

``guards`` asks whether other collections would have told what teaching did to a collection's own people's
questions: the encoder of queries that each collection taught (``--set tower=query``) searches all the others,
too, and its gains there stand beside those on its own questions and on the held-out pseudo-queries.

``parts`` teaches a TK from all-MiniLM within so many minutes and says what each part of it took, in seconds
of the clock and of the processor.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise, product
from pathlib import Path

import msgspec
import numpy as np

import rankhouse as rh
from rankhouse.adaptation.adapt import adapt_with
from rankhouse.adaptation.options import AdaptJob
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.qrels import Qrels
from rankhouse.evaluation.measures import evaluate
from rankhouse.evaluation.significance import holm, randomization_test, t_interval
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run
from rankhouse.systems.execution import Execution

DATA = ("dl20", "nfcorpus", "scifact", "wikiqa", "trecqa")
DEPTH = 100


def prepare_dl20(given: Path, work: Path) -> None:
    own = work / "dl20"
    own.mkdir(parents=True, exist_ok=True)
    build(read_documents([given / "dl20" / "corpus.jsonl.gz"]), own / "index", BuildOptions(overwrite=True))
    queries = read_queries(given / "dl20" / "queries.jsonl")
    lines = (msgspec.json.encode({"id": query.id, "text": query.text}) for query in queries)
    (own / "test.queries.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    write_qrels(read_qrels(given / "dl20" / "qrels.txt"), own / "test.qrels")
    write_run(read_run(given / "dl20" / "runs" / "bm25.run"), own / "test.run", "bm25")


def adapt(work: Path, teacher: str, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        own, out = work / data, work / chosen.name / data
        if (out / "adapted.json").exists():
            continue
        command = [
            "rankhouse",
            "adapt",
            "--index",
            str(own / "index"),
            "--teacher",
            teacher,
            "--out",
            str(out),
        ]
        command += ["--steps", str(chosen.steps), *(chosen.extra or [])]
        command += [
            "--test-queries",
            str(own / "test.queries.jsonl"),
            "--test-qrels",
            str(own / "test.qrels"),
        ]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True)


def table(work: Path, teacher: str, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        own, out = work / data, work / chosen.name / data
        if not (out / "adapted.json").exists():
            continue
        adapted = msgspec.json.decode((out / "adapted.json").read_bytes())
        weight = adapted.get("student_weight", adapted.get("pupil_weight"))  # its name until version 0.2
        queries, first = read_queries(own / "test.queries.jsonl"), read_run(own / "test.run").top(DEPTH)
        index, qrels = rh.Index.open(own / "index"), read_qrels(own / "test.qrels")
        first = first.restrict([query.id for query in queries if query.id in qrels])
        alone = rh.rerank(str(out), first, queries, index, depth=DEPTH)
        runs = {"BM25": first, "student": alone}
        for share in sorted({0.3, 0.5, 0.7, weight}):
            joined = rh.fuse([alone, first], 'linear("z-score")', weights=[share, 1 - share])
            runs[f"student {share:g} + BM25" + (" (chosen)" if share == weight else "")] = joined
        runs["teacher"] = rh.rerank(teacher, first, queries, index, depth=DEPTH)
        measures = "nDCG@10 AP(rel=2) RR@10" if data == "dl20" else "nDCG@10 AP RR@10"
        comparison = rh.compare(
            runs, qrels, measures, baseline="BM25", test="randomization", correction="holm"
        )
        print(f"\n{data}\n{comparison.to_markdown()}", flush=True)


def against(work: Path, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        qrels, folders = (
            read_qrels(work / data / "test.qrels"),
            (work / chosen.other / data, work / chosen.name / data),
        )
        print(f"\n| {data} | {chosen.other} | {chosen.name} | difference, 95 % interval | p |")
        print("|---|---|---|---|---|")
        first = read_run(folders[0] / "test.first-stage.run")

        def shown(what: str, runs: list[rh.Run], qrels: Qrels = qrels) -> None:
            known = {query_id: qrels[query_id] for query_id in sorted(runs[0]) if query_id in qrels}
            one, other = (np.asarray(evaluate(run, known, ("nDCG@10",)).of("nDCG@10")) for run in runs)
            gain, p = t_interval(other - one), float(randomization_test((other - one)[None])[0])
            difference = f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
            print(f"| {what} | {one.mean():.4f} | {other.mean():.4f} | {difference} | {p:.4f} |")

        alone = [read_run(folder / "test.student.run") for folder in folders]
        shown("alone", alone)
        shown("joined", [read_run(folder / "test.student+first-stage.run") for folder in folders])
        for share in (0.5, 0.7, 0.9):
            weights = [share, 1 - share]
            shown(
                f"joined at {share}",
                [rh.fuse([run, first], 'linear("z-score")', weights=weights) for run in alone],
            )


WORDS = "bm25(k1=0.9, b=0.4)"
TOKENS = 'colbert("default", from_encoder=True)'
PLACES = {"nfcorpus": ".dev", "scifact": ".dev", "trecqa": ".test", "wikiqa": ".test", "qmsum": ".dev"}
"""Collections whose test is a part of their questions -> what the names of its files have."""
PASSAGES = ("qmsum",)
"""Collections whose passages are searched."""


def judgements(given: Path, data: str) -> Qrels:
    """Read those of a collection's test, of passages where these are searched."""
    return read_qrels(given / data / f"{'passage_' * (data in PASSAGES)}qrels{PLACES.get(data, '')}.txt")


def encoder(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    untaught, asked = f"dense({chosen.encoder}, name='untaught')", []
    hybrid = f"0.3 * {WORDS} + 0.7 * {untaught}"
    for data in chosen.data:
        index, source, side = work / data / "index", given / data, PLACES.get(data, "")
        passages = source / "passages.jsonl.gz"
        texts = passages if data in PASSAGES else source / "corpus.jsonl.gz"
        if not index.exists():
            command("index", texts, "--out", index)
            command("encode", "--index", index, "--ranker", chosen.encoder, "--name", "untaught")
        qrels = judgements(given, data)
        queries = [query for query in read_queries(source / f"queries{side}.jsonl") if query.id in qrels]
        systems = {"BM25": WORDS, "untaught": untaught, "BM25+untaught": hybrid}
        if chosen.tokens:
            command(
                "encode", "--index", index, "--ranker", TOKENS, "--split", "words(100)", "--dtype", "int8"
            )
            systems |= {"tokens": f"({hybrid}) % 200 >> {TOKENS}"}
            systems |= {"BM25+tokens": f"0.3 * {WORDS} + 0.7 * ({systems['tokens']})"}
        if chosen.people:
            asked = ["--queries", source / "queries.train.jsonl"]
        for seed in chosen.seeds:
            name = f"{chosen.name}-{seed}"
            out, student = work / name / data, chosen.encoder
            teacher = systems["BM25+tokens" if chosen.tokens else "BM25+untaught"]
            if chosen.after:
                before = f"{chosen.after}-{seed}"
                student = work / before / data / "ranker"
                teacher = f"0.3 * {WORDS} + 0.7 * dense({str(student.parent)!r}, name={before!r})"
            if not (out / "adapted.json").exists():
                learned = ["--ranker", student, "--teacher", teacher, "--steps", chosen.steps, "--seed", seed]
                command("adapt", "--index", index, *learned, *asked, "--out", out, *(chosen.extra or []))
            command("encode", "--index", index, "--ranker", out, "--name", name)
            dense = f"dense({str(out)!r}, name={name!r})"
            systems |= {f"taught.{name}": dense, f"BM25+taught.{name}": f"0.3 * {WORDS} + 0.7 * {dense}"}
        wanted = {name: rh.system(one) for name, one in systems.items()}
        for name, run in Execution(rh.Index.open(index), queries).run_all(wanted).items():
            path = work / "runs" / data / f"{name}.run.zst"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                write_run(run.top(DEPTH), path, name)


def encoders(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    """Print what ``encoder`` found: each question's mean over seeds, tested over all collections."""
    rows: dict[str, list[list[str]]] = {"": [], "BM25+": []}
    tests: dict[str, list[np.ndarray]] = {"": [], "BM25+": []}
    for data in chosen.data:
        qrels, folder = judgements(given, data), work / "runs" / data

        def values(name: str, folder: Path = folder, qrels: Qrels = qrels) -> np.ndarray:
            run = read_run(folder / f"{name}.run.zst")
            known = {query_id: qrels[query_id] for query_id in sorted(run) if query_id in qrels}
            return np.asarray(evaluate(run, known, ("nDCG@10",)).of("nDCG@10"))

        words = values("BM25").mean()
        for joined, lines in rows.items():
            names = [f"{joined}taught.{chosen.against}-{seed}" for seed in chosen.seeds]
            before = np.mean(
                [values(name) for name in (names if chosen.against else [f"{joined}untaught"])], 0
            )
            seeds = np.stack([values(f"{joined}taught.{chosen.name}-{seed}") for seed in chosen.seeds])
            gain = t_interval(seeds.mean(0) - before)
            tests[joined].append(seeds.mean(0) - before)
            each = ", ".join(f"{one:.3f}" for one in seeds.mean(1))
            shown = f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
            lines.append([f"{data} ({len(before)})", f"{words:.3f}", f"{before.mean():.3f}", each, shown])
    base = f"taught by {chosen.against}" if chosen.against else "untaught"
    for joined, lines in rows.items():
        p = np.array([float(randomization_test(one[None])[0]) for one in tests[joined]])
        print(
            f"\n| | BM25 | {joined}{base} | {joined}taught, by seed | difference, 95 % interval | p | Holm |"
        )
        print("|---|---|---|---|---|---|---|")
        for line, plain, corrected in zip(lines, p, holm(p), strict=True):
            print("| " + " | ".join([*line, f"{plain:.4f}", f"{corrected:.3f}"]) + " |")
    weights(given, work, chosen)


def teachers(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    """Print what the sums are worth that teach: with one vector a text, and with vectors of tokens."""
    rows, differences = [], []
    for data in chosen.data:
        qrels, folder, values = judgements(given, data), work / "runs" / data, []
        for name in ("BM25+untaught", "BM25+tokens", "untaught", "tokens"):
            run = read_run(folder / f"{name}.run.zst")
            known = {query_id: qrels[query_id] for query_id in sorted(run) if query_id in qrels}
            values.append(np.asarray(evaluate(run, known, ("nDCG@10",)).of("nDCG@10")))
        differences.append(values[1] - values[0])
        gain = t_interval(differences[-1])
        means = [f"{one.mean():.3f}" for one in (values[2], values[3], values[0], values[1])]
        difference = f"{gain.mean:+.4f} ({gain.low:+.4f} to {gain.high:+.4f})"
        rows.append([f"{data} ({len(values[0])})", *means, difference])
    p = np.array([float(randomization_test(one[None])[0]) for one in differences])
    print("\n| | vectors | tokens | BM25+vectors | BM25+tokens | difference, 95 % interval | p | Holm |")
    print("|---|---|---|---|---|---|---|---|")
    for row, plain, corrected in zip(rows, p, holm(p), strict=True):
        print("| " + " | ".join([*row, f"{plain:.4f}", f"{corrected:.3f}"]) + " |")


def weights(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    """Print what the weights that ``adapt`` chose lose, beside the best that judgements find."""
    print(
        "\n| | weights chosen, by seed | best | nDCG@10 lost, mean | with equal shares |\n"
        "|---|---|---|---|---|"
    )
    for data in chosen.data:
        qrels, runs = judgements(given, data), work / "runs" / data
        words, taken, bests = read_run(runs / "BM25.run.zst"), [], []
        lost: list[list[float]] = []
        for seed in chosen.seeds:
            student = read_run(runs / f"taught.{chosen.name}-{seed}.run.zst")
            adapted = work / f"{chosen.name}-{seed}" / data / "adapted.json"
            taken.append(msgspec.json.decode(adapted.read_bytes())["student_weight"])
            found = {0.0: words, 1.0: student}
            for tenth in range(1, 10):
                shares = [tenth / 10, 1 - tenth / 10]
                found[tenth / 10] = rh.fuse([student, words], 'linear("z-score")', weights=shares)
            values = {
                weight: float(np.mean(evaluate(run, qrels, ("nDCG@10",)).of("nDCG@10")))
                for weight, run in found.items()
            }
            bests.append(max(values, key=lambda weight: values[weight]))
            lost.append([values[bests[-1]] - values[weight] for weight in (taken[-1], 0.5)])
        shown = [", ".join(f"{one:g}" for one in each) for each in (taken, bests)]
        shown += [f"{one:.4f}" for one in np.mean(lost, axis=0)]
        print("| " + " | ".join([data, *shown]) + " |", flush=True)


def guards(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    """Print gains on own questions, on held-out pseudo-queries, and on the other collections."""
    print(
        "\n| taught on, seed | held out | own questions | " + " | ".join(chosen.data) + " | mean of others |"
    )
    print("|---|---|---|" + "---|" * (len(chosen.data) + 1))
    rows = []
    for data, seed in product(chosen.data, chosen.seeds):
        out, name, gains = work / f"{chosen.name}-{seed}" / data, f"{chosen.name}-{data}-{seed}", {}
        outcome = msgspec.json.decode((out / "training" / "outcome.json").read_bytes())
        for other in chosen.data:
            qrels, index = judgements(given, other), rh.Index.open(work / other / "index")
            queries = read_queries(given / other / f"queries{PLACES.get(other, '')}.jsonl")
            queries = [query for query in queries if query.id in qrels]
            index.encode(str(out), name=name)
            runs = [read_run(work / "runs" / other / "untaught.run.zst")]
            runs.append(rh.system(f"dense({str(out)!r}, name={name!r}) % {DEPTH}").run(queries, index))
            known = {query: qrels[query] for query in runs[0]}
            values = [np.mean(evaluate(run, known, ("nDCG@10",)).of("nDCG@10")) for run in runs]
            gains[other] = float(values[1] - values[0])
        others = float(np.mean([gain for other, gain in gains.items() if other != data]))
        rows.append([outcome["best"] - outcome["untaught"], gains[data], *gains.values(), others])
        print(f"| {data}, {seed} | " + " | ".join(f"{one:+.4f}" for one in rows[-1]) + " |", flush=True)
    held_out, own, others = (np.array([row[place] for row in rows]) for place in (0, 1, -1))
    for what, gain in (("held-out questions", held_out), ("other collections", others)):
        said, right = np.corrcoef(gain, own)[0, 1], np.mean((gain >= 0) == (own >= 0))
        print(f"\nGain on {what} and on own questions: correlation {said:.2f}, the same sign {right:.0%}")


def parts(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        index, out = work / data / "index", work / chosen.name / data
        if not index.exists():
            command("index", given / data / "corpus.jsonl.gz", "--out", index)
        began: list[tuple[str, float, float]] = []

        def show(name: str, began: list[tuple[str, float, float]] = began) -> Progress:
            began.append((name, time.monotonic(), time.process_time()))
            return ignore

        job = AdaptJob(index=index, teachers=("default",), minutes=chosen.minutes)
        show("opening")
        with ExitStack() as stack:
            result = adapt_with(job.adaptation(out, {}, show, stack))
        show("end")
        print(f"\n{data}: {result.questions:,} questions, {result.steps:,} steps\n")
        print("| part | seconds | of the processor |\n|---|---:|---:|")
        for (name, clock, own), (_, clock_after, own_after) in pairwise(began):
            print(f"| {name} | {clock_after - clock:.0f} | {own_after - own:.0f} |")
        log = [
            msgspec.json.decode(line) for line in (out / "training" / "log.jsonl").read_text().splitlines()
        ]
        stepping = sum(b["seconds"] - a["seconds"] for a, b in pairwise(log) if "loss" in b)
        print(f"\nSteps took {stepping:.0f} s, {stepping / (began[-1][1] - began[0][1]):.0%} of the time")


def command(*words: object) -> None:
    said = ["rankhouse", *map(str, words)]
    print("$", shlex.join(said), flush=True)
    subprocess.run([sys.executable, "-m", *said], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "what",
        choices=("dl20", "adapt", "table", "against", "encoder", "encoders", "teachers", "guards", "parts"),
    )
    parser.add_argument("first", type=Path)
    parser.add_argument("second")
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--steps", type=int, default=2000, help="Minutes would depend on the machine's load.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--name", default="taught")
    parser.add_argument("--other", default="lists", help="against: the name to compare with.")
    parser.add_argument(
        "--encoder", default='biencoder("default")', help="The encoder to teach, in notation."
    )
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--after", default="", help="encoder: the name of the round before.")
    parser.add_argument("--tokens", action="store_true", help="encoder: teach by vectors of tokens.")
    parser.add_argument("--against", default="", help="encoders: the name to compare with.")
    parser.add_argument("--people", action="store_true", help="Learn from unjudged training questions, too.")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, help="Further options of rankhouse adapt.")
    chosen = parser.parse_args()
    if chosen.what == "dl20":
        prepare_dl20(chosen.first, Path(chosen.second))
        return
    if chosen.what == "against":
        against(chosen.first, chosen)
        return
    on_collections = {"encoder": encoder, "encoders": encoders, "guards": guards, "parts": parts}
    on_collections |= {"teachers": teachers}
    if chosen.what in on_collections:
        on_collections[chosen.what](chosen.first, Path(chosen.second), chosen)
        return
    teacher = f"biencoder({str(chosen.second)!r})"
    (adapt if chosen.what == "adapt" else table)(chosen.first, teacher, chosen)


if __name__ == "__main__":
    sys.exit(main())
