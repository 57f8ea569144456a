"""rankhouse adapt: from documents and a teacher to a ranker, resumed where it was killed."""

import itertools
import json
import random
import shutil
import time
from dataclasses import replace
from functools import wraps
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from rankhouse.text.words import BLINGFIRE

pytest.importorskip("torch")
pytest.importorskip(BLINGFIRE)

import torch
from tests.models import tiny

import rankhouse as rh
from rankhouse.adaptation import adapt as adapting
from rankhouse.adaptation import questions as adapt_questions
from rankhouse.adaptation import student
from rankhouse.adaptation.adapt import adapt_with
from rankhouse.adaptation.options import Adaptation, AdaptOptions, JudgedQuestions
from rankhouse.adaptation.questions import ask_documents, asking, questions
from rankhouse.adaptation.student import begin_student, examples_of, held_out, settings_of
from rankhouse.adaptation.teacher import (
    VectorTeacher,
    by_quantile,
    similarities,
    vector_teacher,
    write_word_vectors,
)
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.progress import ignore
from rankhouse.index.dense.vectors import EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher, z_scores
from rankhouse.models.doc2query import open_doc2query
from rankhouse.models.tk import TKDesign
from rankhouse.nn import machine
from rankhouse.nn.machine import has_int8
from rankhouse.systems.teachers import SystemTeacher
from rankhouse.training import fit as fit_module

TOPICS = {
    "harbour": ["pilots", "steer", "ships", "into", "the", "harbour", "at", "high", "water"],
    "grain": ["farmers", "harvest", "wheat", "and", "sell", "grain", "at", "the", "market"],
    "coal": ["miners", "dig", "coal", "that", "burns", "in", "power", "stations"],
    "music": ["violins", "play", "a", "quartet", "in", "the", "concert", "hall"],
}
MEANING = {word: place for place, words in enumerate(TOPICS.values()) for word in words}


class Meaning:
    """A bi-encoder whose vectors say how many words of each topic a text has, and which document it is."""

    scale, similarity = "similarity", "cosine"

    def __init__(self, fingerprint="meaning-1"):
        self.encoded, self.fingerprint = 0, fingerprint

    def encode_passages(self, texts):
        self.encoded += len(texts)
        return np.stack([self._vector(text) for text in texts])

    encode_queries = encode_passages

    @staticmethod
    def _vector(text):
        vector = np.full(16, 0.01, np.float32)
        for word in text.lower().replace(".", " ").split():
            vector[MEANING.get(word, 4 + sum(map(ord, word)) % 12)] += 1 if word in MEANING else 0.3
        return vector

    def score(self, pairs):
        one, other = (self.encode_queries([part.text for part in side]) for side in zip(*pairs, strict=True))
        one, other = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (one, other))
        return (one * other).sum(1).astype(np.float32)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    rng = random.Random(3)
    documents = []
    for number in range(80):
        topic = TOPICS[list(TOPICS)[number % 4]]
        sentences = [" ".join([f"word{rng.randrange(60)}", *rng.sample(topic, 5)]) for _ in range(3)]
        documents.append(
            {"id": f"d{number}", "title": f"note{number} {topic[0]}", "text": ". ".join(sentences) + "."}
        )
    return rh.Index.build(documents, tmp_path_factory.mktemp("adapt") / "i")


OPTIONS = {
    "ranker": "tk(width=16, heads=2, attention_width=4, feed_forward=8, min_count=1)",
    "held_out": 20,
    "width": 8,
}
TEST = JudgedQuestions(
    [rh.Query("t1", "ships harbour"), rh.Query("t2", "coal power")],
    {"t1": {f"d{n}": 1 for n in range(0, 80, 4)}, "t2": {f"d{n}": 1 for n in range(2, 80, 4)}},
)


class Plain:
    """The same teacher without vectors."""

    scale, fingerprint = "similarity", "plain"

    def score(self, pairs):
        return Meaning().score(pairs)


class Length:
    """Another one, on another scale: the shorter the better."""

    scale, fingerprint = "score", "length"

    def score(self, pairs):
        return np.array([-len(pair.passage.text) for pair in pairs], np.float32)


def adapt(index, out, teacher=None, test=TEST, people=(), weighing=None, **options):
    chosen, given = AdaptOptions(**OPTIONS | {"steps": 40} | options), {"people": people, "test": test}
    return adapt_with(
        Adaptation(index, teacher or Meaning(), out, chosen, lambda _: ignore, weighing=weighing, **given)
    )


def training(out, name="training"):
    return json.loads((out / name / "settings.json").read_text())


def test_a_fingerprint_of_a_system_keeps_the_text_that_was_given():
    for text in ("bm25(k1=0.9, b=0.4)", "rrf(bm25, jm(lambda=0.1), k=60)"):
        assert SystemTeacher(rh.system(text)).fingerprint == text


@pytest.mark.slow
def test_a_ranker_is_made_that_opens_and_reports(index, tmp_path):
    people = [rh.Query("p1", "quartet of violins")]
    result = adapt(index, tmp_path / "a", people=people, ranker="tk", steps=8)
    assert result.steps == 8
    assert training(tmp_path / "a")["crossed"]  # every question of a batch beside every document of it
    assert set(result.test) == {"first stage", "student", "student + first stage", "teacher"}
    assert result.held_out["joined"] >= max(result.held_out["first stage"], result.held_out["student"])
    assert 0 <= result.student_weight <= 1
    assert json.loads((tmp_path / "a" / "adapted.json").read_text())["test"] == result.test
    whole, measured = rh.system(result.system), rh.read_run(tmp_path / "a" / "test.student+first-stage.run")
    assert whole.given == result.system
    found = whole.run(TEST.queries, index)
    assert {q: found[q].doc_ids for q in found} == {q: measured[q].doc_ids for q in measured}
    words = (tmp_path / "a" / "words.txt").read_text().splitlines()
    assert len(words[0].split()) == 1 + 8
    ranker = rh.open_ranker(tmp_path / "a")
    assert len(ranker.rank("ships", ["ships sail", "coal burns"]).doc_ids) == 2
    asked = [
        json.loads(line)["text"]
        for line in (tmp_path / "a" / "questions" / "queries.jsonl").read_text().splitlines()
    ]
    assert "quartet of violins" in asked
    assert not {"ships harbour", "coal power"} & set(asked)


@pytest.mark.slow
def test_judged_questions_choose_the_weight_of_a_finished_student(index, tmp_path):
    out, options = tmp_path / "a", {"steps": 4, "test": None}
    before = adapt(index, out, **options)
    query = rh.Query("w", "pilots wheat")
    found = rh.system("bm25(k1=0.9, b=0.4) % 10").run([query], index)["w"].doc_ids  # right, by judgement
    judged = JudgedQuestions([query], {"w": {doc: len(found) - n for n, doc in enumerate(found)}})
    many = [rh.Query(f"w{n}", query.text) for n in range(900)]
    judged = JudgedQuestions(many, {one.id: judged.qrels["w"] for one in many})
    again = adapt(index, out, weighing=judged, **options)
    assert again.held_out["first stage"] == before.held_out["first stage"]
    assert again.student_weight < before.student_weight
    with pytest.raises(WrongUse, match="questions of the test would choose the weight"):
        adapt(index, tmp_path / "b", weighing=TEST)
    with pytest.raises(BadData, match='none of the questions that choose the weight is judged.*"t1"'):
        adapt(index, tmp_path / "b", weighing=JudgedQuestions([query], TEST.qrels))
    with pytest.raises(BadData, match="finds nothing for any judged question that chooses the weight"):
        adapt(index, tmp_path / "b", weighing=JudgedQuestions([rh.Query("z", "zzzz")], {"z": {"d1": 1}}))
    with pytest.raises(BadData, match="none of the questions that choose the weight is judged"):
        adapt(index, tmp_path / "b", weighing=JudgedQuestions([query], {"w": {}}))
    assert not (tmp_path / "b").exists() or not list((tmp_path / "b").iterdir())


@pytest.mark.slow
def test_a_student_learns_to_order_as_its_teacher_does(index, tmp_path):
    def agreement(ranker):
        pairs = [
            [rh.Pair(query, rh.Passage(f"d{n}", 0, index.documents[f"d{n}"].full_text)) for n in range(40)]
            for query in TEST.queries
        ]
        teacher = Meaning()
        return np.mean([np.corrcoef(ranker.score(some), teacher.score(some))[0, 1] for some in pairs])

    adapt(index, tmp_path / "short", steps=1, test=None)
    adapt(index, tmp_path / "long", steps=70, test=None)
    before, after = (agreement(rh.open_ranker(tmp_path / name)) for name in ("short", "long"))
    assert after > max(0.4, before + 0.1)


@pytest.mark.slow
def test_given_again_it_goes_on_and_makes_nothing_twice(index, tmp_path, monkeypatch):
    import rankhouse.adaptation.adapt as stages

    few = {"steps": 12}
    whole = adapt(index, tmp_path / "whole", **few)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "teach", killed)
    first = Meaning()
    with pytest.raises(KeyboardInterrupt):
        adapt(index, tmp_path / "killed", first, **few)
    monkeypatch.undo()
    again = Meaning()
    result = adapt(index, tmp_path / "killed", again, **few)
    assert result.test == whole.test
    assert again.encoded < first.encoded / 2  # the test's pairs only
    shutil.rmtree(tmp_path / "killed" / "ranker")

    def copy_one(source, target):
        target.mkdir(exist_ok=True)
        shutil.copy(source / "manifest.json", target)
        raise KeyboardInterrupt

    monkeypatch.setattr(stages.shutil, "copytree", copy_one)
    with pytest.raises(KeyboardInterrupt):
        adapt(index, tmp_path / "killed", again, **few)
    monkeypatch.undo()
    assert adapt(index, tmp_path / "killed", again, **few).test == whole.test
    with pytest.raises(rh.RankhouseError, match="another adaptation; not as it was: .*seed \\(was 0\\);"):
        adapt(index, tmp_path / "killed", seed=1, **few)


@pytest.mark.slow
def test_more_steps_go_on_from_a_finished_student(index, tmp_path, monkeypatch, capsys):
    import rankhouse.adaptation.adapt as stages

    small, out = {"ranker": "knrm(width=8, min_count=1)", "test": None}, tmp_path / "a"
    adapt(index, out, steps=4, **small)
    first = Meaning()
    result = adapt(index, out, first, steps=10, **small)
    assert result.steps == 10
    assert first.encoded == 0  # nothing was prepared again
    assert "6 more steps after 4" in capsys.readouterr().err
    assert training(out, "training-2")["steps"] == 6
    one, two = (json.loads((out / name / "outcome.json").read_text()) for name in ("training", "training-2"))
    assert two["validations"][0] == [0, one["best"]]
    weights = (out / "ranker" / "weights.safetensors").read_bytes()
    assert weights == (out / "training-2" / "ranker" / "weights.safetensors").read_bytes()
    assert adapt(index, out, steps=10, **small) == result
    for wrong in ({"steps": 9}, {"steps": 0, "minutes": 5.0}, {"steps": 12, "seed": 1}):
        with pytest.raises(rh.RankhouseError, match="another adaptation; not as it was"):
            adapt(index, out, **small | wrong)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(stages, "teach", killed)
    for at in (10, 12):
        with pytest.raises(KeyboardInterrupt):
            adapt(index, out, steps=at, **small)
    monkeypatch.undo()
    again = adapt(index, out, steps=12, **small)
    assert (again.steps, training(out, "training-3")["steps"]) == (12, 2)
    with pytest.raises(rh.RankhouseError, match="steps \\(was 4\\)"):  # a killed one is not finished
        monkeypatch.setattr(stages, "teach", killed)
        with pytest.raises(KeyboardInterrupt):
            adapt(index, tmp_path / "b", steps=4, **small)
        adapt(index, tmp_path / "b", steps=8, **small)


@pytest.mark.slow
def test_more_minutes_go_on_from_a_finished_student(index, tmp_path, monkeypatch):
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 0, "test": None}
    monkeypatch.setattr(student, "seconds_a_step", lambda *_: 0.5)
    first = adapt(index, tmp_path / "a", minutes=0.001, **small)
    assert first.steps == 50
    result = adapt(index, tmp_path / "a", minutes=1.001, **small)
    added = json.loads((tmp_path / "a" / "steps.json").read_text())["added"]
    assert added == [pytest.approx(60 / 0.525, abs=12)]
    assert result.steps == 50 + added[0]


@pytest.mark.slow
def test_a_teacher_without_vectors_teaches_by_lists(index, tmp_path):
    result = adapt(index, tmp_path / "a", Plain(), ranker="knrm(width=8, min_count=1)", steps=10)
    settings = training(tmp_path / "a")
    assert (settings["crossed"], settings["loss"], settings["batch"]) == (False, "listwise-kl", 16)
    assert result.test["teacher"] > 0
    chosen = {"batch": 4, "crossed": True, "count": 2}
    adapt(index, tmp_path / "b", Plain(), ranker="knrm(width=8, min_count=1)", steps=2, settings=chosen)
    assert training(tmp_path / "b").items() >= chosen.items()


@pytest.mark.slow
def test_a_slow_teacher_reads_what_there_is_time_for(index, tmp_path, capsys):
    class Slow:
        scale, fingerprint, read = "similarity", "slow", 0

        def score(self, pairs):
            time.sleep(0.001 * len(pairs))
            self.read += len(pairs)
            return Meaning().score(pairs)

    def round_trip(out, **options):
        """Return how many pairs the teacher reads before it is asked about those that are held out."""
        slow, folder = Slow(), tmp_path / out
        chosen = AdaptOptions(**OPTIONS | {"held_out": 10} | options)
        questions(Adaptation(index, slow, folder, chosen, lambda _: ignore))
        return slow.read

    whole, short = round_trip("whole"), round_trip("short", minutes=0.08)
    assert short < whole / 2
    assert "reads 20 candidates of" in capsys.readouterr().err
    assert short < 2000  # a quarter of the time, a millisecond each, and two for the measurement


def test_a_large_collection_asks_by_some_of_its_documents(index):
    some = [document.id for document in asking(index, AdaptOptions(questions=20))]
    assert 8 < len(some) < 35
    assert len(list(asking(index, AdaptOptions(questions=80)))) == 80


@pytest.mark.slow
def test_a_trained_tk_goes_on_from_its_own_mixture(index, tmp_path):
    adapt(index, tmp_path / "a", test=None, steps=10)
    model = rh.open_ranker(tmp_path / "a").model
    mixture = float(model.mix.detach())
    options = AdaptOptions(ranker=str(tmp_path / "a" / "ranker"))
    again = begin_student(Adaptation(index, Meaning(), tmp_path, options, lambda _: ignore))
    assert float(again.mix.detach()) == mixture != pytest.approx(0.9)


@pytest.mark.slow
def test_minutes_bound_the_work(index, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(student.ProcessorTime, "share_of_others", lambda *_: 0.6)
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 0, "test": None}
    result = adapt(index, tmp_path / "a", minutes=0.05, **small)
    assert result.steps < 4000
    said = capsys.readouterr().err
    assert " from now" in said
    assert "other programs have 60% of the processor" in said
    assert result.test == {}
    result = adapt(index, tmp_path / "b", minutes=0.0001, **small)
    assert result.steps == 50
    assert "give more minutes" in capsys.readouterr().err


@pytest.mark.slow
def test_all_that_is_no_step_is_taken_off_the_minutes(index, tmp_path, monkeypatch):
    """A second a step, and 20 ms a pair that student or teacher reads."""
    monkeypatch.setattr(student, "seconds_a_step", lambda *_: 1.0)
    monkeypatch.setattr(student, "seconds_a_pair", lambda *_: 0.02)
    monkeypatch.setattr(student, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    rows, runs = [], []

    def settled(minutes, test=TEST, **more):
        options = AdaptOptions(**OPTIONS | {"minutes": minutes, "depth": 40} | more)
        folder = tmp_path / f"{minutes} {len(more)} {test is None}"
        job = Adaptation(index, Meaning(), folder, options, lambda _: ignore, test=test)
        found = questions(job)
        apart, model = held_out(job, found), begin_student(job)
        examples = examples_of(found, index)
        settings = settings_of(model.family, found.teacher, options)
        work = student.StudentTraining(model, examples, settings, apart)
        rows.append(sum(len(ranking.doc_ids) for ranking in apart.first.values()))
        runs.append(apart.first)
        done = student.timetable(job, work, 900.0)
        assert student.timetable(job, work, 0.0) == done
        return done

    long = settled(30.0)
    assert (long.validation, long.weighing) == (20, 20)
    assert long.afterwards == pytest.approx(13 * rows[0] * 0.02 + 2 * 40 * 0.04, abs=0.1)
    assert 100 + long.steps * 1.05 + long.afterwards == pytest.approx(1800, abs=2)
    short = settled(4.0)
    assert short.validation < 20  # fewer are read, so that time is left for learning
    assert 100 + short.steps * 1.05 + short.afterwards == pytest.approx(240, abs=2)
    assert settled(30.0, test=None).afterwards == pytest.approx(long.afterwards - 2 * 40 * 0.04, abs=0.1)
    long_run = runs[0]
    documents = {doc_id for query in long_run.values() for doc_id in query.doc_ids}
    assert student._to_read(long_run, once=True) == len(documents) < student._to_read(long_run, once=False)
    given = settled(4.0, steps=7)
    assert (given.steps, given.validation) == (7, 20)


@pytest.mark.slow
def test_what_is_held_out_is_read_once_and_within_the_time(index, tmp_path):
    class Slow(Plain):
        read = 0

        def score(self, pairs):
            self.read += 1
            time.sleep(0.01)
            return super().score(pairs)

    options = AdaptOptions(**OPTIONS)
    job = Adaptation(index, Slow(), tmp_path, options, lambda _: ignore)
    found = questions(job)
    before = found.teacher.read
    job = replace(job, options=replace(options, minutes=0.001))
    apart = held_out(job, found)
    assert len(apart.queries) == len(apart.taught) == found.teacher.read - before < 20
    again = held_out(job, found)
    assert (again.queries, again.taught, again.own) == (apart.queries, apart.taught, apart.own)
    assert found.teacher.read - before == len(apart.queries)
    few = apart.few(3)
    assert set(few.own) == set(few.taught) == set(few.first) == {query.id for query in apart.queries[:3]}
    validation = few.validation(index)
    assert validation.rows == sum(len(few.first[query.id].doc_ids[:50]) for query in few.queries)
    assert few.validation(index, own=False).qrels == few.taught  # as adaptations of earlier versions go on
    for query_id, grades in validation.qrels.items():
        own, best = few.own[query_id], few.taught[query_id]
        assert grades == {d: best.get(d, 0) + 3 * (d in own) for d in {*own, *best}}


def test_scores_are_not_kept_of_a_teacher_with_vectors(index, run, tmp_path, bert):
    teacher = f"biencoder({str(bert('BertModel'))!r})"
    done = run(
        "adapt",
        "--index",
        index.path,
        "--teacher",
        teacher,
        "--cache",
        tmp_path / "c",
        "--out",
        tmp_path / "o",
    )
    assert done.returncode == 2
    assert "vectors of a bi-encoder are kept in --out" in done.stderr


@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
def test_vectors_score_pairs_as_the_encoder_would(similarity, tmp_path):
    import torch

    from rankhouse.models.biencoder import compare

    rng = np.random.default_rng(0)
    queries, vectors = rng.normal(size=(3, 5)).astype(np.float32), rng.normal(size=(6, 5)).astype(np.float32)
    encoder = SimpleNamespace(
        fingerprint="x",
        similarity=similarity,
        encode_passages=lambda texts: vectors[[int(text) for text in texts]],
    )
    documents = [rh.Document(f"d{n}", str(n)) for n in range(6)]
    stored = encode(encoder, documents, tmp_path / "v", EncodeOptions(6, "six"))
    teacher = VectorTeacher({f"q{n}": v for n, v in enumerate(queries)}, stored)
    pairs = [
        rh.Pair(rh.Query(f"q{q}", ""), rh.Passage(f"d{d}", 0, ""))
        for q, d in [(0, 1), (2, 5), (0, 0), (1, 1)]
    ]
    rows = torch.tensor([[0, 1], [2, 5], [0, 0], [1, 1]])
    expected = compare(torch.tensor(queries)[rows[:, 0]], torch.tensor(vectors)[rows[:, 1]], similarity)
    np.testing.assert_allclose(teacher.score(pairs), expected, rtol=1e-4, atol=1e-5)
    nearest = teacher.nearest([rh.Query("q1", "")], 2)
    best = np.argsort(-similarities(queries[1:2], vectors, similarity)[0])[:2]
    assert nearest["q1"].doc_ids == tuple(f"d{n}" for n in best)


def test_word_vectors_keep_what_the_teacher_says_of_words(tmp_path):
    words = [word for topic in TOPICS.values() for word in topic]
    write_word_vectors(Meaning(), words, tmp_path / "w.txt", 4)
    rows = {
        line.split()[0]: np.array(line.split()[1:], float)
        for line in (tmp_path / "w.txt").read_text().splitlines()
    }
    assert len(rows["ships"]) == 4

    def cosine(a, b):
        return rows[a] @ rows[b] / np.linalg.norm(rows[a]) / np.linalg.norm(rows[b])

    assert cosine("ships", "pilots") > cosine("ships", "coal") + 0.5


@pytest.mark.parametrize("options", [{"questions": 0}, {"minutes": -1.0}, {"depth": 0}])
def test_wrong_options_are_refused(options):
    with pytest.raises(rh.RankhouseError, match=next(iter(options))):
        AdaptOptions(**options)


T5 = Path(__file__).parents[1] / "golden" / "monot5"


@pytest.fixture
def t5(tmp_path):
    shutil.copytree(T5 / "tiny_t5_v1_0", tmp_path / "t5")
    shutil.copy(T5 / "spiece.model", tmp_path / "t5")
    return str(tmp_path / "t5")


STUDENTS = {
    "tk": "tk",
    "knrm": "knrm",
    "conv_knrm": "conv_knrm",
    "samcnn": "samcnn(width=8, filters=8, min_count=1)",
    "crossencoder": "crossencoder({!r})",
    "biencoder": "biencoder({!r})",
    "monot5": "monot5({!r})",
}


@pytest.mark.slow
@pytest.mark.parametrize("student", STUDENTS)
def test_every_family_is_a_student(index, tmp_path, bert, t5, student):
    folder = t5
    if student in ("crossencoder", "biencoder"):
        folder = (
            bert("BertForSequenceClassification", num_labels=2)
            if student == "crossencoder"
            else bert("BertModel")
        )
    result = adapt(index, tmp_path / "a", ranker=STUDENTS[student].format(str(folder)), steps=3)
    assert result.steps == 3
    assert result.test["student"] > 0
    assert rh.open_ranker(tmp_path / "a").model.family == student


@pytest.mark.slow
def test_transformers_are_teachers(index, tmp_path, bert):
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 3}
    encoder = rh.open_ranker(f"biencoder({str(bert('BertModel'))!r})", device="cpu")
    plain = rh.open_ranker(f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})")
    for teacher in (encoder, plain):
        assert adapt(index, tmp_path / teacher.model.family, teacher, **small).test["teacher"] > 0


@pytest.mark.slow
def test_several_teachers_with_vectors_teach_as_one(index, tmp_path):
    def pair():
        return JoinedTeachers([Meaning(), Meaning("meaning-2")])

    first = pair()
    result = adapt(index, tmp_path / "a", first, ranker="tk", steps=8)
    assert training(tmp_path / "a")["crossed"]
    assert result.test["teacher"] > 0
    asked = tmp_path / "a" / "questions"
    assert {path.name for path in asked.glob("teacher-*/*")} == {"documents", "queries.npy", "queries.json"}
    assert not list(asked.glob("*.npy"))
    again = pair()
    assert adapt(index, tmp_path / "a", again, ranker="tk", steps=8).test == result.test
    assert again.teachers[0].encoded < first.teachers[0].encoded / 2  # the test's pairs only
    with pytest.raises(rh.RankhouseError, match="another adaptation; not as it was: teacher;"):
        adapt(index, tmp_path / "a", JoinedTeachers(pair().teachers, "ranks"), ranker="tk", steps=8)


def test_vectors_of_the_teacher_that_an_index_has_are_not_made_again(index, tmp_path):
    other = tmp_path / "i"
    shutil.copytree(index.path, other)
    own, first = rh.Index.open(other), Meaning()
    job = EncodeOptions(len(own), own.fingerprint)
    encode(first, own.documents.stream(), vectors_folder(other, "theirs"), job)
    encode(Meaning("meaning-2"), own.documents.stream(), vectors_folder(other), job)
    teacher, out = Meaning(), tmp_path / "a"
    found = questions(Adaptation(own, teacher, out, AdaptOptions(**OPTIONS), lambda _: ignore))
    without = Meaning()
    same = questions(Adaptation(index, without, tmp_path / "b", AdaptOptions(**OPTIONS), lambda _: ignore))
    assert without.encoded - teacher.encoded == len(index)
    assert not (out / "questions" / "documents").exists()
    assert found.queries == same.queries
    pairs = [rh.Pair(query, rh.Passage("d3", 0, "")) for query in found.queries]
    np.testing.assert_allclose(found.teacher.score(pairs), same.teacher.score(pairs), atol=2e-3)
    own.append([{"id": "new", "text": "ships sail"}])  # they lack a document now
    late = tmp_path / "c"
    questions(Adaptation(rh.Index.open(other), teacher, late, AdaptOptions(**OPTIONS), lambda _: ignore))
    assert (late / "questions" / "documents").exists()


def test_as_many_questions_are_encoded_as_a_fifth_of_the_minutes_has_time_for(
    index, tmp_path, monkeypatch, capsys
):
    clock = SimpleNamespace(now=0.0)

    class Slow(Meaning):
        def encode_queries(self, texts):
            clock.now += len(texts)  # a second each
            return super().encode_queries(texts)

    monkeypatch.setattr(adapt_questions.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(adapt_questions.time, "perf_counter", lambda: clock.now)
    monkeypatch.setattr(adapt_questions, "_ASKED_AT_LEAST", 30)
    monkeypatch.setattr(adapt_questions, "_ENCODED", 16)
    monkeypatch.setattr(adapt_questions, "_BESIDES", 1.0)

    def job(folder, minutes):
        options = AdaptOptions(**OPTIONS | {"minutes": minutes})
        return Adaptation(index, Slow(), tmp_path / folder, options, lambda _: ignore)

    everyone = questions(job("all", 0.0)).queries
    few = questions(job("few", 500 / 60)).queries  # 100 seconds, less 18 of the trial
    assert "the teacher encodes 82 of" in capsys.readouterr().err
    assert len(few) <= 82 < len(everyone)
    assert {query.text for query in few} <= {query.text for query in everyone}
    questions(job("least", 0.1))
    assert "the teacher encodes 30 of" in capsys.readouterr().err


def test_a_teacher_encodes_documents_in_int8_where_the_processor_can(index, tmp_path, bert, monkeypatch):
    def opened(name, **changes):
        return rh.open_ranker(f"biencoder({str(bert(name, **changes))!r})", precision="fp32", device="cpu")

    encoder, asked = opened("BertModel", hidden_size=64, intermediate_size=128), [rh.Query("q1", "ships")]

    def made(folder, quick, encoder=encoder):
        monkeypatch.setattr(machine, "has_int8", lambda: quick)
        job = Adaptation(index, encoder, tmp_path, AdaptOptions(**OPTIONS), lambda _: ignore)
        vector_teacher(encoder, job, asked, tmp_path / folder / "queries.npy")
        return Vectors.open(tmp_path / folder / "documents").state.encoder

    for folder in "abc":
        (tmp_path / folder).mkdir()
    assert made("a", quick=False) == encoder.fingerprint
    if not has_int8():
        pytest.skip("this processor computes nothing in int8")
    assert made("b", quick=True) == encoder.fingerprint.replace("fp32", "int8")
    assert made("a", quick=True) == encoder.fingerprint  # goes on as it was begun
    narrow = opened("BertModel", hidden_size=24, num_attention_heads=2, intermediate_size=40)
    assert made("c", quick=True, encoder=narrow) == narrow.fingerprint


def test_kept_questions_that_were_changed_are_refused_and_their_vectors_made_again(index, tmp_path, capsys):
    job = Adaptation(index, Meaning(), tmp_path, AdaptOptions(**OPTIONS), lambda _: ignore)
    asked = questions(job).queries
    vectors, own = tmp_path / "questions" / "queries.npy", tmp_path / "questions" / "own.qrels"
    sound = vectors.read_bytes()
    for damaged in (sound[:-1] + b"\x7f", sound[:40], b""):
        vectors.write_bytes(damaged)
        assert questions(job).queries == asked
        assert vectors.read_bytes() == sound
    assert "queries.npy: was changed after it was written; it is made again" in capsys.readouterr().err
    own.write_text(own.read_text().replace(" d", " e", 1))
    with pytest.raises(rh.RankhouseError, match=r"own\.qrels: was changed after it was written; put it back"):
        questions(job)


@pytest.mark.slow
def test_joined_scores_are_compared_with_a_questions_first_candidates(index, tmp_path):
    options = AdaptOptions(**OPTIONS)
    teacher = JoinedTeachers([Meaning(), Length()])
    found = questions(Adaptation(index, teacher, tmp_path, options, lambda _: ignore))
    query = found.queries[0]
    doc_ids = found.candidates[query.id].doc_ids
    passages = [rh.Passage(d, 0, index.documents[d].full_text) for d in doc_ids]
    pairs = [rh.Pair(query, passage) for passage in passages]
    both = np.column_stack([Meaning().score(pairs), Length().score(pairs)]).astype(float)
    expected = z_scores(both, both[:20])
    np.testing.assert_allclose(found.teacher.score(pairs), expected, rtol=1e-2, atol=1e-2)  # half precision


def test_a_tk_in_windows_begins_with_the_teachers_words_unless_it_says_otherwise(index, tmp_path):
    sizes = "heads=2, attention_width=4, feed_forward=8, min_count=1, windows=(8, 16)"

    def begun(spec, folder):
        options = AdaptOptions(**OPTIONS | {"ranker": spec})
        (tmp_path / folder).mkdir()
        return begin_student(Adaptation(index, Meaning(), tmp_path / folder, options, lambda _: ignore))

    taught, bare = begun(f"tk({sizes}, )", "a"), begun("tk", "b")
    assert taught.policy["windows"] == [8, 16]
    assert taught.policy["width"] == bare.policy["width"] == 8
    assert taught.mix == bare.mix == np.float32(0.9)
    words = [model.reader.vocabulary.ids(["harbour"])[0] for model in (taught, bare)]
    vectors = [model.embedding.weight[word] for model, word in zip((taught, bare), words, strict=True)]
    assert vectors[0].equal(vectors[1])
    assert (taught.head.merge.weight > 0).all()
    pairs = [
        rh.Pair(rh.Query("q", "harbour"), rh.Passage("d", 0, f"{word} sands")) for word in ("harbour", "coal")
    ]
    with torch.no_grad():  # so that a window with the word is better before anything is learned
        assert np.diff(taught.eval()(taught.encode(pairs)).numpy()) < 0
    drawn = begun(f"tk({sizes}, width=16)", "c")
    assert (drawn.policy["width"], drawn.mix.item()) == (16, 0.5)
    assert not (tmp_path / "c" / "words.txt").exists()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("tk(windows=(0,))", "1 token or more"),
        ("tk(widnows=(20,))", "widnows"),
        ("tk(start='nowhere')", "is no folder"),
        ("crossencoder('nowhere')", "nowhere"),
    ],
)
def test_a_student_that_cannot_be_begun_is_refused_before_anything_is_written(index, tmp_path, spec, said):
    with pytest.raises(rh.RankhouseError, match=said):
        adapt(index, tmp_path / "a", Meaning(), ranker=spec)
    assert not (tmp_path / "a").exists()


HYBRID = "0.5 * bm25 + 0.5 * ql(mu=50)"


def test_a_system_teaches_by_what_it_finds(index, tmp_path, monkeypatch, capsys):
    job = Adaptation(
        index, SystemTeacher(rh.system(HYBRID)), tmp_path, AdaptOptions(**OPTIONS), lambda _: ignore
    )
    found = questions(job)
    assert "ranks all documents for" in capsys.readouterr().err
    some = [query for query in found.queries if len(found.candidates[query.id]) > 3][:5]
    expected = rh.system(HYBRID).run(some, index)
    for query in some:
        own, scores = found.candidates[query.id].doc_ids, dict(expected.to_dict()[query.id])
        assert own == expected[query.id].doc_ids[: len(own)][:20] + own[20:]
        missing = next(f"d{n}" for n in range(80) if f"d{n}" not in scores)
        asked = [rh.Pair(query, rh.Passage(doc_id, 0, "")) for doc_id in (*own, missing)]
        given = found.teacher.score(asked)
        np.testing.assert_array_equal(given[:-1], np.float32([scores[doc_id] for doc_id in own]))
        assert given[-1] == np.float32(min(scores.values()))
    assert found.teacher.score([rh.Pair(rh.Query("new", "?"), rh.Passage("d1", 0, ""))]).tolist() == [0]
    monkeypatch.setattr(SystemTeacher, "of", None)  # the lists are kept
    again = questions(job)
    assert again.queries == found.queries
    assert again.teacher.fingerprint == found.teacher.fingerprint


def test_long_lists_are_learned_by_their_heads_and_quantiles():
    run = rh.Run.of({"q": {f"d{n:03}": -float(n) for n in range(200)}, "short": {"a": 1.0, "b": 0.0}})
    chosen = by_quantile(run, 30)
    assert chosen["short"] == run["short"]
    places = [int(doc_id[1:]) for doc_id in chosen["q"].doc_ids]
    assert places[:10] == list(range(10))
    assert len(places) == 30
    assert set(np.diff(places[10:])) == {9, 10}
    assert (places[10], places[-1]) == (14, 195)


@pytest.mark.slow
def test_a_system_teaches_a_student_beside_the_report_of_its_own_ranking(index, tmp_path):
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 3}

    def taught(out, expression, **more):
        return rh.adapt(index, expression, out=tmp_path / out, **small | more)

    adapted = adapt(index, tmp_path / "a", SystemTeacher(rh.system(HYBRID)), **small)
    assert training(tmp_path / "a")["crossed"]  # its scores are at hand
    own = rh.system(HYBRID).run(TEST.queries, index)
    assert adapted.test["teacher"] == rh.evaluate(own, TEST.qrels, "nDCG@10").mean("nDCG@10")
    assert not list((tmp_path / "a" / "questions").glob("asked*"))
    taught("b", HYBRID)
    assert json.loads((tmp_path / "b" / "plan.json").read_text())["teacher"] == HYBRID
    with pytest.raises(rh.RankhouseError, match="another adaptation; not as it was: teacher;"):
        taught("b", "bm25")
    taught("c", [rh.system("bm25"), Plain()])
    assert len(list((tmp_path / "c" / "questions").glob("teacher-1/queries.run.zst"))) == 1
    for wrong, said in (
        ("0.5 * bm25", "add another to it"),
        ("bm25 + qk", "qk"),
        ("(bm25", "cannot be read"),
    ):
        with pytest.raises(rh.RankhouseError, match=said):
            taught("d", wrong)
    assert not (tmp_path / "d").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")  # so few steps
def test_a_system_is_a_teacher_of_a_training(index, tmp_path):
    queries = {f"q{n}": f"ships harbour word{n}" for n in range(6)}
    run, whole = index.retrieve(queries, k=20), rh.system(HYBRID).run(queries, index)
    small = {"queries": queries, "run": run, "settings": {"steps": 4}}
    for out, teacher in (("system", HYBRID), ("run", whole)):
        rh.train("knrm(width=8, min_count=1)", index, out=tmp_path / out, teacher=teacher, **small)
    weights = [(tmp_path / out / "ranker" / "weights.safetensors").read_bytes() for out in ("system", "run")]
    assert weights[0] == weights[1]
    with pytest.raises(rh.RankhouseError, match="cannot score 1 pairs by themselves; give questions and"):
        SystemTeacher(rh.system(HYBRID)).score([rh.Pair(rh.Query("q", "?"), rh.Passage("d", 0, "x"))])


@pytest.mark.slow
def test_an_encoder_learns_what_a_system_finds_and_is_never_kept_below_the_untaught(index, tmp_path, bert):
    small = {"ranker": f"biencoder({str(bert('BertModel'))!r})", "steps": 6, "test": None}
    teacher = SystemTeacher(rh.system(HYBRID))
    result = adapt(index, tmp_path / "a", teacher, settings={"rate": 0.3}, **small)  # a rate that spoils it
    settings, outcome = (
        json.loads((tmp_path / "a" / "training" / f"{name}.json").read_text())
        for name in ("settings", "outcome")
    )
    loss = "listwise-kl(sharpness=2)"
    expected = {"crossed": True, "loss": loss, "patience": 4, "dropout": 0.0, "batch": 8, "count": 7}
    assert settings.items() >= expected.items()
    assert outcome["validations"][0] == [0, outcome["untaught"]]
    assert outcome["best"] == max(value for _, value in outcome["validations"])
    ordered = rh.read_run(tmp_path / "a" / "training" / "untaught.run")  # not only what has the same words
    candidates = rh.read_run(tmp_path / "a" / "questions" / "candidates.run.zst").top(50)
    assert all(set(ordered[q].doc_ids) == set(candidates[q].doc_ids) for q in ordered)
    kept = rh.open_ranker(tmp_path / "a")
    if outcome["best_step"] == 0:
        untaught = rh.open_ranker(small["ranker"])
        np.testing.assert_array_equal(kept.encode_queries(["ships"]), untaught.encode_queries(["ships"]))
    command = result.encode.split()
    assert command[:2] == ["rankhouse", "encode"]
    assert command[-1] == "a"
    index.encode(tmp_path / "a", name="a")
    dense = f"dense({str(tmp_path / 'a')!r}, name='a')"
    assert len(rh.system(dense).rank("ships harbour", index).doc_ids) == 80


@pytest.mark.slow
def test_an_encoder_of_queries_alone_searches_the_vectors_that_are_there(index, tmp_path, bert, capsys):
    spec, own = f"biencoder({str(bert('BertModel'))!r})", tmp_path / "i"
    shutil.copytree(index.path, own)
    searched = rh.Index.open(own)
    searched.encode(spec, name="untaught")
    settings = {"tower": "query", "rate": 1e-2}
    adapt(searched, tmp_path / "a", ranker=spec, steps=4, test=None, settings=settings)
    resumed = adapt(searched, tmp_path / "a", ranker=spec, steps=4, test=None, settings=settings)
    assert resumed.steps == 4
    capsys.readouterr()
    searched.encode(tmp_path / "a", name="mine")
    assert "vectors of documents copied from" in capsys.readouterr().err
    one, other = (Vectors.open(own / "vectors" / name) for name in ("untaught", "mine"))
    np.testing.assert_array_equal(one.rows[:], other.rows[:])
    assert one.state.encoder != other.state.encoder
    other.verify()
    ranked = rh.system(f"dense({str(tmp_path / 'a')!r}, name='mine')").rank("ships harbour", searched)
    assert len(ranked.doc_ids) == 80
    split = tmp_path / "split"
    shutil.copytree(index.path, split)
    cut = rh.Index.open(split)
    cut.encode(spec, name="untaught", split="words(20)")
    cut.encode(tmp_path / "a", name="mine")  # cut otherwise, so that nothing there is alike
    assert "copied" not in capsys.readouterr().err


@pytest.mark.slow
def test_half_of_the_weights_stay_those_of_an_encoder_that_knew_something(index, tmp_path, bert, monkeypatch):
    import torch

    from rankhouse.models.bundle import load

    small = {"ranker": f"biencoder({str(bert('BertModel'))!r})", "steps": 2, "test": None}
    teacher, settings = SystemTeacher(rh.system(HYBRID)), {"rate": 1e-3, "validate_every": 2}

    def taught(name, knew):
        monkeypatch.setattr(adapting, "_KNEW", knew)
        adapt(index, tmp_path / name, teacher, settings=settings, **small)
        folder = tmp_path / name
        return [load(folder / part / "ranker").state_dict() for part in (".", "training")]

    began = rh.open_ranker(small["ranker"]).model.state_dict()
    monkeypatch.setattr(fit_module.Validator, "__call__", rising(fit_module.Validator.__call__))
    kept, best = taught("a", 0.0)
    assert any(not torch.equal(best[name], began[name]) for name in began)
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, (best[name] + began[name]) / 2)
    kept, best = taught("b", 1.1)  # as one that knew nothing
    assert all(torch.equal(tensor, best[name]) for name, tensor in kept.items())
    monkeypatch.setattr(student, "_UNTAUGHT", 0.0)
    kept, best = taught("c", 0.0)  # as in adaptations of earlier versions
    assert all(torch.equal(tensor, best[name]) for name, tensor in kept.items())


def test_weights_of_two_names_are_moved_back_once():
    import torch

    network = torch.nn.Module()
    network.one = torch.nn.Embedding(3, 2)
    network.other = torch.nn.Linear(2, 3, bias=False)
    network.other.weight = network.one.weight  # as T5's
    untaught = {name: torch.zeros_like(tensor) for name, tensor in network.state_dict().items()}
    taught = network.one.weight.detach().clone()
    adapting._blend(network, untaught, 0.5)
    torch.testing.assert_close(network.one.weight, taught / 2)
    assert network.other.weight is network.one.weight


def rising(validate):
    """Return a validation whose values rise, so that the last weights are the best."""
    values = itertools.count(1)
    return lambda self, ranker: (float(next(values)), validate(self, ranker)[1])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["sparse", "colbert"])
def test_other_encoders_learn_in_the_same_loop(index, tmp_path, bert, family):
    folder = bert("BertForMaskedLM" if family == "sparse" else "BertModel")
    if family == "colbert":
        tiny.with_marks("BertModel", tmp_path / "plain")
        folder = tmp_path / "colbert"
        tiny.stanford(tmp_path / "plain", folder)
    small = {"ranker": f"{family}({str(folder)!r})", "steps": 2, "test": None, "held_out": 5}
    adapt(index, tmp_path / "a", SystemTeacher(rh.system(HYBRID)), **small)
    assert training(tmp_path / "a")["crossed"]
    assert rh.open_ranker(tmp_path / "a").model.family == family


def test_what_is_at_hand_is_crossed(tmp_path):
    lists = RunTeacher(rh.Run.of({"q": {"d": 1.0}}))

    def crossed(family, teacher):
        return settings_of(family, teacher, AdaptOptions()).crossed

    families = ("tk", "biencoder", "sparse", "colbert", "crossencoder")
    assert [family for family in families if crossed(family, lists)] == list(families[:-1])
    assert not any(crossed(family, Plain()) for family in families)


def test_a_step_on_long_documents_takes_fewer_of_them():
    lists = RunTeacher(rh.Run.of({"q": {"d": 1.0}}))

    def settings(**design):
        changes = {"batch": design.pop("batch")} if "batch" in design else {}
        model = TKDesign(**design, width=16, min_count=1).fresh(["ships steer into the harbour"])
        return settings_of("tk", lists, AdaptOptions(settings=changes), model)

    chosen = [settings(passage_length=n) for n in (120, 800)]
    assert [(one.batch, one.count) for one in chosen] == [(2, 25), (1, 15)]
    assert settings(passage_length=800, batch=3).batch == 3
    assert "head.scales" not in chosen[1].rates
    windowed = settings(passage_length=800, windows=(20, 50)).rates
    assert windowed["head.scales"] < chosen[1].rate / 10
    assert windowed["encoder"] == chosen[1].rates["encoder"]


@pytest.mark.slow
def test_a_run_teaches_beside_a_ranker(index, tmp_path):
    people = [rh.Query("p1", "quartet of violins"), rh.Query("p2", "wheat market")]
    own = rh.Run.of({"p1": {f"d{n}": float(n) for n in range(40)}})
    teacher = JoinedTeachers([Plain(), RunTeacher(own)])
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 3, "people": people}
    assert adapt(index, tmp_path / "a", teacher, **small).steps == 3
    assert not training(tmp_path / "a")["crossed"]
    with pytest.raises(rh.RankhouseError, match="rankhouse train --teacher RUN"):
        adapt(index, tmp_path / "b", RunTeacher(own), **small)


@pytest.mark.slow
def test_the_first_stage_is_chosen_and_a_test_run_is_reranked(index, tmp_path):
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 3}
    with pytest.raises(rh.RankhouseError, match='"bm26" is not a known model'):
        adapt(index, tmp_path / "wrong", first_stage="bm26", **small)
    with pytest.raises(rh.RankhouseError, match="there are no such vectors"):
        adapt(index, tmp_path / "wrong", SystemTeacher(rh.system('dense("x", name="none")')), **small)
    assert not (tmp_path / "wrong").exists()
    result = adapt(index, tmp_path / "a", first_stage="ql(mu=50)", **small)
    assert result.first_stage == "ql(mu=50)"
    first = index.retrieve(TEST.queries, "ql(mu=50)", k=100)
    assert result.test["first stage"] == rh.evaluate(first, TEST.qrels, "nDCG@10").mean("nDCG@10")
    wrong = {f"d{n}": 1.0 - n for n in range(1, 80, 4)}
    worst = rh.Run.of({"t1": wrong, "t2": wrong, "other": {"d1": 1.0}})
    test = JudgedQuestions(TEST.queries, TEST.qrels, worst)
    assert adapt(index, tmp_path / "a", test=test, first_stage="ql(mu=50)", **small).test["first stage"] == 0
    with pytest.raises(rh.RankhouseError, match='none of the 2 test queries: it has "other"'):
        JudgedQuestions(TEST.queries, TEST.qrels, worst.restrict(["other"]))


def test_there_are_no_more_choices_than_steps_to_choose_between(index, tmp_path):
    """Every part took a step at least, and mined before it: 999,999 parts of a training of 4 steps."""
    with pytest.raises(rh.RankhouseError, match="mine=999999: a training of 4 steps has at most 3 places"):
        adapt(index, tmp_path / "a", ranker="knrm(width=8, min_count=1)", steps=4, mine=999_999)
    with pytest.raises(rh.RankhouseError, match="a training of 4,000 steps"):
        AdaptOptions(mine=4_000)
    assert not (tmp_path / "a").exists()


@pytest.mark.slow
def test_the_student_itself_chooses_hard_negatives_and_false_ones_are_left_out(index, tmp_path, capsys):
    small = {"ranker": "knrm(width=8, min_count=1)", "steps": 11, "mine": 1}
    result = adapt(index, tmp_path / "a", **small)
    assert result.steps == 11
    assert [training(tmp_path / "a")["steps"], training(tmp_path / "a", "training-2")["steps"]] == [5, 6]
    (mined,) = result.mined
    assert f"; {mined.false_negatives:,} more, which the teacher likes" in capsys.readouterr().err
    run = rh.read_run(tmp_path / "a" / "questions" / "mined-1.run")
    own = rh.read_qrels(tmp_path / "a" / "questions" / "own.qrels")
    queries = {query.id: query for query in rh.read_queries(tmp_path / "a" / "questions" / "queries.jsonl")}
    first = rh.open_ranker(tmp_path / "a" / "training")
    candidates = rh.read_run(tmp_path / "a" / "questions" / "candidates.run.zst")
    left_out = 0
    for query_id in run:

        def scores(ranker, doc_ids, query=queries[query_id]):
            texts = [rh.Passage(d, 0, index.documents[d].full_text) for d in doc_ids]
            return dict(zip(doc_ids, ranker.score([rh.Pair(query, text) for text in texts]), strict=True))

        mine = run[query_id].doc_ids
        (true,) = own[query_id]
        by_student = scores(first, candidates[query_id].doc_ids)
        twentieth = sorted(by_student.values())[-20]
        assert all(by_student[doc_id] >= twentieth - 1e-5 for doc_id in mine)
        by_teacher = scores(Meaning(), [true, *mine])
        assert all(by_teacher[d] <= by_teacher[true] + 1e-2 for d in mine)
        left_out += 20 - len(mine)
    assert mined.candidates == run.rows
    assert mined.false_negatives > 0
    assert left_out <= mined.false_negatives
    ranker = tmp_path / "a" / "ranker" / "weights.safetensors"
    assert ranker.read_bytes() == (tmp_path / "a" / "training-2" / "ranker" / ranker.name).read_bytes()
    assert adapt(index, tmp_path / "a", **small) == result  # read again, not mined again


@pytest.mark.slow
def test_a_model_writes_questions_and_what_it_wrote_is_kept(index, tmp_path, t5, monkeypatch, capsys):
    def asked(out, **more):
        options = AdaptOptions(**OPTIONS | {"doc2query": f"doc2query({t5!r}, longest=8)"} | more)
        folder = tmp_path / out
        done = ask_documents(Adaptation(index, Meaning(), folder, options, lambda _: ignore))
        return done, folder / "questions" / "written.jsonl"

    whole, path = asked("a")
    assert "questions are written about 80 of 80 documents" in capsys.readouterr().err
    written = [query for query in whole.queries if query.kind == "doc2query"]
    assert written
    assert {query.kind for query in whole.queries} > {"doc2query", "span"}
    lines = path.read_text().splitlines()
    assert len(lines) == 1 + 80
    path.write_text("\n".join(lines[:41]) + "\n" + lines[41][:9])  # as a kill leaves it
    model, before = open_doc2query, []

    @wraps(model)
    def counting(*given, **options):
        ask = model(*given, **options)
        return lambda document, seed: before.append(document.id) or ask(document, seed)

    monkeypatch.setattr("rankhouse.adaptation.written.open_doc2query", counting)
    again, _ = asked("a")
    assert again.queries == whole.queries
    assert path.read_text().splitlines() == lines
    assert len(before) == 40
    only, _ = asked("b", pseudo=PseudoOptions(("doc2query",)))
    assert {query.kind for query in only.queries} == {"doc2query"}
    _, path = asked("c", minutes=1e-9)
    assert json.loads(path.read_text().splitlines()[0])["documents"] == 1
    with pytest.raises(rh.RankhouseError, match="need a model that writes them"):
        asked("d", pseudo=PseudoOptions(("doc2query",)), doc2query="")


@pytest.mark.slow
def test_in_python_as_on_the_command_line(index, tmp_path):
    ranker = rh.adapt(
        index,
        [Plain(), rh.Run.of({"p1": {"d1": 2.0, "d2": 1.0}})],
        out=tmp_path / "a",
        ranker="knrm(width=8, min_count=1)",
        join="ranks",
        queries={"p1": "quartet of violins"},
        test=(TEST.queries, TEST.qrels, {"t1": {"d0": 1.0, "d1": 0.5}, "t2": {"d2": 1.0}}),
        first_stage="ql",
        steps=3,
        questions=30,
        kinds=["span", "title"],
        depth=10,
        cache=tmp_path / "scores",
    )
    assert ranker.model.family == "knrm"
    plan = json.loads((tmp_path / "a" / "plan.json").read_text())
    options = plan["options"]
    assert (options["first_stage"], options["depth"], options["questions"]) == ("ql", 10, 30)
    assert options["pseudo"]["kinds"] == ["span", "title"]
    assert plan["teacher"].startswith("joined('ranks', 'plain', ")
    assert (tmp_path / "scores" / "scores.sqlite").exists()
    for wrong in ({"kinds": "span"}, {"test": (TEST.queries,)}, {"join": "sum"}):
        with pytest.raises(rh.RankhouseError):
            rh.adapt(index, [Plain(), Plain()], out=tmp_path / "b", **wrong)


@pytest.mark.always
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")  # the teacher's training
def test_the_command_adapts_and_says_how_to_go_on(run, tmp_path, index):
    done = run("adapt", "--index", index.path, "--teacher", "missing", "--out", tmp_path / "o", "--steps", 5)
    assert done.returncode == 1
    queries = {f"q{n}": f"ships harbour word{n}" for n in range(6)}
    first = index.retrieve(queries, k=20)
    qrels = {query: dict.fromkeys(first[query].doc_ids[:3], 1) for query in first}
    rh.train(
        "knrm(width=8, min_count=1)", index, out=tmp_path / "teacher", queries=queries, qrels=qrels, run=first
    )
    command = ["adapt", "--index", index.path, "--teacher", tmp_path / "teacher", "--steps", 5]
    done = run(
        *command,
        "--ranker",
        "knrm(width=8, min_count=1)",
        "--kinds",
        "span,title",
        "--out",
        tmp_path / "o",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 5
    written = (tmp_path / "o" / "command.txt").read_text()
    assert written.startswith("rankhouse adapt --index ")
    assert "--kinds span,title" in written
    (tmp_path / "own.run").write_text("p1 Q0 d1 1 2.0 x\np1 Q0 d2 2 1.0 x\n")
    (tmp_path / "people.tsv").write_text("p1\tquartet of violins\n")
    several = ["--teacher", "own.run", "--join", "ranks", "--queries", "people.tsv", "--first-stage", "ql"]
    done = run(*command, *several, "--ranker", "knrm(width=8, min_count=1)", "--out", tmp_path / "q")
    assert done.returncode == 0, done.stderr
    plan = json.loads((tmp_path / "q" / "plan.json").read_text())
    assert plan["teacher"].startswith("joined('ranks', ")
    assert plan["options"]["first_stage"] == "ql"
    for more, said in (
        (["--minutes", 3], "--steps says how long"),
        (["--join", "ranks"], "--join would change nothing here"),
        (["--test-run", "own.run"], "it is for --test-queries"),
    ):
        wrong = run(*command, *more, "--out", tmp_path / "p")
        assert wrong.returncode == 2
        assert said in wrong.stderr


@pytest.mark.slow
def test_a_folder_of_a_designs_name_is_not_mistaken_for_a_ranker(index, tmp_path, monkeypatch):
    (tmp_path / "tk").mkdir()
    monkeypatch.chdir(tmp_path)
    assert adapt(index, tmp_path / "a", ranker="tk", steps=20).steps == 20
    with pytest.raises(rh.RankhouseError, match="no ranker saved by rankhouse"):
        adapt(index, tmp_path / "b", ranker=str(tmp_path / "tk" / ".." / "tk"))


@pytest.mark.slow
def test_a_setting_that_is_refused_leaves_nothing_behind(index, tmp_path):
    with pytest.raises(rh.RankhouseError, match="below 1"):
        adapt(index, tmp_path / "a", settings={"dropout": 1.5})
    assert not (tmp_path / "a").exists()
    made = adapt(index, tmp_path / "made", steps=20)
    with pytest.raises(rh.RankhouseError, match="below 1"):
        adapt(index, tmp_path / "a", ranker=str(tmp_path / "made" / "ranker"), settings={"dropout": 1.5})
    assert made.steps == 20
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("name", ["steps", "epochs", "seed"])
def test_what_all_parts_share_is_no_setting_of_the_student(index, tmp_path, name):
    option = "seed=" if name == "seed" else "steps= or minutes="
    with pytest.raises(rh.RankhouseError, match=f"{name}=7 is no setting of the student here: give {option}"):
        rh.adapt(index, Meaning(), out=tmp_path / "a", settings={name: 7})
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(("quick", "precision"), [(True, "bf16"), (False, "fp32")])
def test_a_cross_encoder_learns_in_bf16_where_the_processor_is_quick_at_it(monkeypatch, quick, precision):
    monkeypatch.setattr("rankhouse.nn.machine.has_bf16", lambda: quick)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    def chosen(**changes):
        return settings_of("crossencoder", Meaning(), AdaptOptions(settings=changes)).precision

    assert chosen() == precision
    assert chosen(precision="fp32") == "fp32"
