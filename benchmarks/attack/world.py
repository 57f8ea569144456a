"""The world that is attacked: a small collection in every format, indexes, vectors, rankers, a recipe."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
from pathlib import Path

from .calls import call

WORDS = """harbour pilot ship tide lock crane grain coal salt bread milk price north week storm lamp stone
river moon water night winter bar level deep cargo rope sail mast anchor captain crew port
island bridge""".split()  # noqa: SIM905 - a list of words is read more easily so
SMALL, MORE = 40, 15  # documents of the collection, and of what is added to it
SPIECE = Path(__file__).parents[2] / "tests" / "golden" / "monot5" / "spiece.model"
KNRM = "knrm(min_count=1, width=16)"
_NEURAL = re.compile(
    "encode|rerank|label|train|taught|knrm|tk/|cross|vectors|kept|cache|bundle|checkpoint| in "
)
CROSS, DENSE = 'crossencoder("cross")', 'biencoder("plain")'
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
TASK = ["--queries", "queries.tsv", "--index", "my.index", "--run", "bm25.run"]
SETTINGS = ["--epochs", "2", "--set", "rate=0.01", "--set", "rates={}", "--set", "batch=8"]
VALID = ["--valid-queries", "queries.tsv", "--valid-qrels", "qrels.txt", "--valid-run", "bm25.run"]
LEARN = ["--queries", "queries.tsv", "--index", "my.index", "--qrels", "qrels.txt", "--run", "bm25.run"]
TINY_T5 = ["--d-model", "16", "--layers", "1", "--heads", "2", "--d-ff", "16", "--batch", "4"]

RECIPE = """title = "A recipe that is attacked"
[data]
root = "."
[loop]
seed = [1, 2]
[steps.index]
command = "index"
corpus = "@root/corpus.jsonl"
workers = 1
[steps.bm25]
command = "search"
index = "@index"
queries = "@root/queries.tsv"
k = 20
[steps.folds]
command = "folds"
queries = "@root/queries.tsv"
folds = 2
seed = "{seed}"
[steps.part]
command = "subset"
run = "@bm25"
folds = "@folds"
fold = 1
side = "test"
[[table]]
name = "Effectiveness"
rows = { BM25 = "@bm25" }
qrels = "@root/qrels.txt"
measures = "AP nDCG@10"
"""

# What every command needs to succeed in the world; "OUT" is where it writes.
COMMANDS: dict[str, list[str]] = {
    "index": ["index", "corpus.jsonl", "--workers", "1", "--out", "OUT"],
    "search": ["search", "--index", "my.index", "--queries", "queries.tsv", "--out", "OUT"],
    "encode": ["encode", "--index", "my.index", "--ranker", DENSE, *CPU],
    "rerank": ["rerank", *TASK, "--ranker", CROSS, *CPU, "--out", "OUT"],
    "label": ["label", *TASK, "--rule", 'judged("qrels.txt") & taught("knrm")', *CPU, "--out", "OUT"],
    "train": ["train", *LEARN, *VALID, "--ranker", KNRM, *SETTINGS, "--set", "device=cpu", "--out", "OUT"],
    "pretrain": [
        *("pretrain", "corpus.jsonl", "--vocabulary", "spiece.model", *TINY_T5),
        *("--steps", "3", "--length", "24", "--out", "OUT"),
    ],
    "fuse": ["fuse", "bm25.run", "ql.run", "--out", "OUT"],
    "evaluate": ["evaluate", "--qrels", "qrels.txt", "bm25.run", "ql.run", "--per-query", "OUT"],
    "subset": ["subset", "--queries", "queries.tsv", "--sample", "5", "--out", "OUT"],
    "combine": ["combine", "half1.run", "half2.run", "--out", "OUT"],
    "folds": ["folds", "--queries", "queries.tsv", "--folds", "3", "--out", "OUT"],
    "group-split": [
        *("group-split", "--corpus", "corpus.jsonl", "--queries", "queries.tsv", "--qrels", "matches.txt"),
        *("--shares", "first=0.5, second=0.5", "--out", "OUT"),
    ],
    "paired-wins": [
        "paired-wins",
        "bm25.run",
        "ql.run",
        "--qrels",
        "qrels.txt",
        "--ranges",
        "2",
        "--chart",
        "OUT",
    ],
    "label-stats": ["label-stats", "pairs.jsonl"],
    "doctor": ["doctor", "corpus.jsonl", "queries.tsv", "qrels.txt", "bm25.run", "my.index"],
    "run": ["run", "recipe.toml", "--out", "OUT"],
}


def command(name: str, out: str) -> list[str]:
    """Return the command line of a command that writes to ``out``."""
    return [out if word == "OUT" else word for word in COMMANDS[name]]


def documents(number: int, seed: int, longest: int = 30) -> list[dict[str, str]]:
    """Draw documents."""
    rng = random.Random(seed)
    return [
        {"id": f"d{seed}-{i}", "title": f"Title {i % 7}", "text": " ".join(rng.choices(WORDS, k=k)) + "."}
        for i in range(number)
        for k in [rng.randint(3, longest)]
    ]


def light() -> bool:
    """Tell whether nothing neural is to be attacked."""
    return bool(os.environ.get("ATTACK_LIGHT"))


def neural(trial: str) -> bool:
    """Tell by its name whether a trial needs rankers."""
    return bool(_NEURAL.search(trial))


def make(folder: Path) -> None:
    """Make the world with the program itself.

    Raises:
        RuntimeError: A command that ought to work does not.
    """
    folder.mkdir(parents=True)
    _collection(folder)
    if not light():
        _checkpoints(folder)
    (folder / "spiece.model").write_bytes(SPIECE.read_bytes())
    (folder / "recipe.toml").write_text(RECIPE)
    calls: list[list[str]] = [
        ["index", "corpus.jsonl", "--workers", "1", "--out", "my.index"],
        ["index", "big.jsonl", "--workers", "1", "--out", "big.index"],
        ["index", "corpus.jsonl", "--workers", "1", "--out", "full.index"],
        ["search", "--index", "my.index", "--queries", "queries.tsv", "-k", "10", "--out", "bm25.run"],
        [
            *("search", "--index", "my.index", "--queries", "queries.tsv"),
            *("--model", "ql", "--out", "ql.run"),
        ],
    ]
    neural_calls = [
        ["train", *LEARN, *VALID, "--ranker", KNRM, *SETTINGS, "--out", "taught"],
        ["train", *LEARN, "--ranker", "tk(min_count=1, width=16, heads=2)", *SETTINGS, "--out", "tk"],
        ["encode", "--index", "full.index", "--ranker", DENSE, *CPU],
        ["encode", "--index", "full.index", "--ranker", "tk/ranker", *CPU],
        ["encode", "--index", "full.index", "--ranker", CROSS, "--tokens"],
        ["rerank", *TASK, "--ranker", CROSS, *CPU, "--cache", "cache", "--out", "cross.run"],
    ]
    for line in calls + ([] if light() else neural_calls):
        done = call(line, folder, 120)
        if done.code != 0:
            raise RuntimeError(f"rankhouse {' '.join(line)}: {done.code}\n{done.out}\n{done.err}")
    if not light():
        (folder / "taught" / "ranker").rename(folder / "knrm")
    lines = (folder / "bm25.run").read_text().splitlines(keepends=True)
    for name, parity in (("half1.run", 0), ("half2.run", 1)):
        (folder / name).write_text("".join(x for x in lines if int(x.split()[0][1:]) % 2 == parity))


def _collection(folder: Path) -> None:
    rng = random.Random(5)
    small, more = documents(SMALL, 1), documents(MORE, 2)
    text = "".join(json.dumps(d) + "\n" for d in small)
    (folder / "corpus.jsonl").write_text(text)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "corpus.tsv").write_text("".join(f"{d['id']}\t{d['text']}\n" for d in small))
    trec = "<DOC>\n<DOCNO> {id} </DOCNO>\n<TITLE>{title}</TITLE>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"
    (folder / "corpus.trec").write_text("".join(trec.format(**d) for d in small))
    (folder / "more.jsonl").write_text("".join(json.dumps(d) + "\n" for d in more))
    big = documents(2_500, 3, 60)
    for i, document in enumerate(big):
        document["text"] += f" word{i} number{i % 977}"
    (folder / "big.jsonl").write_text("".join(json.dumps(d) + "\n" for d in big))
    queries = [(f"q{i}", " ".join(rng.sample(WORDS, 3))) for i in range(12)]
    (folder / "queries.tsv").write_text("".join(f"{q}\t{t}\n" for q, t in queries))
    (folder / "queries.jsonl").write_text(
        "".join(json.dumps({"id": q, "text": t}) + "\n" for q, t in queries)
    )
    topic = "<top>\n<num> Number: {} \n<title> {}\n<desc> Description:\n{}\n</top>\n"
    (folder / "topics.txt").write_text("".join(topic.format(i, t, t) for i, (_, t) in enumerate(queries)))
    judged = [(q, d["id"], int(t.split()[0] in d["text"])) for q, t in queries for d in small]
    (folder / "qrels.txt").write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in judged))
    (folder / "matches.txt").write_text("".join(f"q{i} 0 d1-{i} 1\n" for i in range(12)))
    pairs = [
        {"query_id": q, "query": t, "doc_id": d["id"], "passage": 0, "text": d["text"], "label": i % 2}
        for q, t in queries
        for i, d in enumerate(rng.sample(small, 4))
    ]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(p) + "\n" for p in pairs))
    folds = [[f"q{i}" for i in range(12) if i % 3 == n] for n in range(3)]
    (folder / "folds.json").write_text(json.dumps(folds))
    vectors = [f"{w} {' '.join(f'{rng.gauss(0, 1):.4f}' for _ in range(8))}\n" for w in WORDS]
    (folder / "vectors.txt").write_text("".join(vectors))
    (folder / "thesis.txt").write_text("Years of work.\n")
    (folder / "mine").mkdir()
    (folder / "mine" / "thesis.txt").write_text("More years of work.\n")


def _checkpoints(folder: Path) -> None:
    """Write a tiny cross-encoder and a tiny encoder with random weights, as transformers writes them."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz0123456789."]
    vocabulary += [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"] + WORDS + ["title"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    for name, head, more in (
        ("cross", "BertForSequenceClassification", {"num_labels": 1}),
        ("plain", "BertModel", {}),
    ):
        torch.manual_seed(3)
        config = transformers.BertConfig(
            vocab_size=len(vocabulary), max_position_embeddings=64, **sizes, **more
        )
        network = getattr(transformers, head)(config)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
        network.save_pretrained(folder / name)
        transformers.BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=64).save_pretrained(
            folder / name
        )
