"""Cascades: rankers one behind the other, and documents dropped by their word embeddings before one reads."""

import json
import math

import numpy as np
import pytest
import torch

import rankhouse as rh
from rankhouse.core.errors import WrongUse
from rankhouse.models.dual_encoder import word_similarity
from rankhouse.ranking.rerank import Plan, Report, rerank
from rankhouse.ranking.see import See
from rankhouse.systems.execution import Execution
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.text.split import Whole

CPU = ComputeOptions("fp32", "cpu", 1)


@pytest.fixture
def cross(world):
    return rh.open_ranker(world.rankers["crossencoder"], precision="fp32", device="cpu", threads=1)


@pytest.mark.parametrize("keep", [0.25, 0.5, 0.75, 1])
def test_kept_documents_score_to_the_same_bits_and_the_others_follow_in_order(keep, world, cross):
    first, whole, report = rh.system("bm25 % 20"), rh.system("bm25 % 20") >> cross, Report()
    some = first.rerank(cross, see=keep)
    before, all_read, seen = (one.run(world.queries, world.index) for one in (first, whole, some))
    plan = Execution(world.index, world.queries).plan(some.stage)
    assert rerank(cross, before, world.queries, world.index.documents, plan, report=report) == seen
    expected = {query_id: math.ceil(keep * len(before[query_id])) for query_id in before}
    assert report.documents == report.passages == sum(expected.values())
    assert report.tail == sum(map(len, before.values())) - report.documents
    for query_id, count in expected.items():
        scores = all_read[query_id].to_dict()
        found = seen[query_id]
        for doc_id, score in zip(found.doc_ids[:count], found.scores[:count], strict=True):
            assert np.float32(score).tobytes() == np.float32(scores[doc_id]).tobytes()
        rest = [doc_id for doc_id in before[query_id].doc_ids if doc_id not in found.doc_ids[:count]]
        assert list(found.doc_ids[count:]) == rest
        assert (np.diff(found.scores) <= 0).all()


def test_similarity_is_the_sum_of_best_cosines_of_word_embeddings(cross):
    """SEE's "amax" by hand, special tokens left out, rare tokens weighing more."""
    texts = ["sailors steer big ships past the rocks", "", "the", "ships ships", "grain prices rose"]
    likeness = word_similarity(cross.model, "it")("who steers ships", [[text] for text in texts])
    table = cross.model.network.get_input_embeddings().weight.detach()
    units = torch.nn.functional.normalize(table.double(), dim=1)
    read = cross.model.pair_reader.texts

    def vectors(text):
        return units[torch.tensor(read([text])[0].kept, dtype=torch.long)]

    asked = vectors("who steers ships")
    ids = [set(read([text])[0].kept.tolist()) for text in texts]
    held = [sum(number in own for own in ids) for number in read(["who steers ships"])[0].kept.tolist()]
    weights = torch.tensor([math.log(6 / (count + 0.5)) for count in held], dtype=torch.double)
    assert len(set(held)) > 1
    expected = [float((asked @ vectors(text).T).amax(1) @ weights) if text else -math.inf for text in texts]
    np.testing.assert_allclose(likeness, expected, atol=1e-6)
    assert likeness[0] > likeness[2]
    cut = word_similarity(cross.model, "it")("who steers ships", [["sailors steer", "big ships"]])
    joined = word_similarity(cross.model, "it")("who steers ships", [["sailors steer big ships"]])
    np.testing.assert_array_equal(cut, joined)
    np.testing.assert_array_equal(word_similarity(cross.model, "it")("", [["a"], ["b"]]), [0, 0])


def test_one_notation_reads_and_prints_it(world):
    spec = world.rankers["crossencoder"]
    written = f"bm25 % 20 >> see(keep=0.5) >> {spec}"
    read = rh.system(written)
    assert str(read) == written
    assert read.stage.see == 0.5
    for other in (written.replace("keep=", ""), f"bm25 % 20 >> {spec[:-1]}, see=0.5)"):
        assert rh.system(other) == read
    assert rh.system(f"bm25 >> see(keep=1) >> {spec}") == rh.system(f"bm25 >> {spec}")
    assert (rh.system("bm25") % 20).rerank(spec, see=0.5) == read
    twice = rh.system(f"(bm25 >> see(keep=0.5) >> {spec}) % 5 >> see(keep=0.4) >> {spec[:-1]}, depth=4)")
    assert rh.system(str(twice)) == twice


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bm25 >> see(keep=0.5)", "is followed by a ranker"),
        ("bm25 >> see", "is followed by a ranker"),
        ("see(keep=0.5) >> default", "is not a known system"),
        ("bm25 >> see(keep=0.5) >> see(keep=0.5) >> default", "is followed by a ranker"),
        ("bm25 >> see(0.5) % 3 >> default", "is no ranker"),
        ("bm25 >> see() >> default", "is written once before a ranker"),
        ("bm25 >> see(share=0.5) >> default", "is written once before a ranker"),
        ("bm25 >> see(keep=0) >> default", r"see\(keep=0\): give the share .* above 0 and at most 1"),
        ("bm25 >> see(keep=1.5) >> default", "give the share"),
        ("bm25 >> see(keep='half') >> default", "give the share"),
        ("bm25 >> see(keep=True) >> default", "give the share"),
    ],
)
def test_what_cannot_be_meant_is_refused(text, said):
    with pytest.raises(WrongUse, match=said):
        rh.system(text)


class Words:
    """A ranker of this process without word embeddings."""

    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


def test_a_ranker_without_word_embeddings_is_refused_in_words(world):
    said = r"drops documents by the word embeddings .*, and {} has none"
    for ranker, name in ((Words(), "Words"), (world.rankers["tk"], "tk")):
        with pytest.raises(WrongUse, match=said.format(name)):
            rh.system("bm25").rerank(ranker, see=0.5).run(world.queries, world.index)
    with pytest.raises(WrongUse, match="duot5 compares documents and reads few"):
        from rankhouse.systems.reranking import PairwiseSystem, RerankOptions

        PairwiseSystem(None).plan(RerankOptions(see=0.5))


def test_the_stage_before_counts_as_much_as_the_words():
    def likeness(query, passages):
        return np.array([{"a": 3.0, "b": 2.0, "c": 1.0, "": -np.inf}[one[0]] for one in passages], np.float32)

    def chosen(scores, keep=0.5):
        run = rh.Run.of({"q": dict(zip(texts, scores, strict=True))})
        documents = {name: rh.Document(name, text) for name, text in texts.items()}
        see = See(keep, likeness)
        return sorted(see.chooser(run, {"q": rh.Query("q", "x")}, documents, split=Whole(), depth=9)("q"))

    texts = {"1": "c", "2": "a", "3": "b", "4": ""}
    assert chosen([5, 5, 5, 5]) == ["2", "3"], "alone, the words decide"
    assert chosen([9, 3, 2, 1]) == ["1", "2"], "a score far above the others keeps a document"
    assert chosen([9, 8, 7, 900], keep=0.75) == ["1", "2", "3"], "one without text is the first to go"


def test_documents_without_text_or_out_of_the_index_are_dropped_first(world, cross):
    run = rh.Run.of({"q0": {"nowhere": 9.0, "d0": 8.0, "d1": 7.0, "d2": 6.0}})
    plan = Plan(
        see=Execution(world.index, world.queries).plan(rh.system("bm25").rerank(cross, see=0.5).stage).see
    )
    found = rerank(cross, run, [rh.Query("q0", "who steers ships")], world.index.documents, plan)
    assert found["q0"].doc_ids[2] == "nowhere"
    dropped = rerank(
        cross, run, [rh.Query("q0", "ships")], world.index.documents, Plan(see=plan.see, tail="drop", depth=3)
    )
    assert len(dropped["q0"]) == 2


def test_a_cascade_of_rankers_narrows_step_by_step(world):
    """``a % 30 >> b % 10 >> c``: c reads what b puts first, and nothing else."""
    spec, dense = world.rankers["crossencoder"], world.rankers["biencoder"]
    cascade = rh.system(f"bm25 % 30 >> {dense}") % 10 >> spec
    assert rh.system(str(cascade)) == cascade
    first = rh.system(f"(bm25 % 30 >> {dense}) % 10")
    work = Execution(world.index, world.queries, CPU)
    runs = work.run_all({"first": first, "cascade": rh.system(str(cascade))})
    scored = Execution(world.index, world.queries, CPU).run(rh.system(f"bm25 % 30 >> {spec}"))
    for query_id, ranking in runs["cascade"].items():
        assert sorted(ranking.doc_ids) == sorted(runs["first"][query_id].doc_ids)
        assert ranking.to_dict() == {doc_id: scored[query_id].to_dict()[doc_id] for doc_id in ranking.doc_ids}


def test_a_dropped_document_is_explained_as_such(world, cross):
    query = world.queries[0]
    system = rh.system("bm25 % 20").rerank(cross, see=0.25)
    found = system.rank(query, world.index)
    count = math.ceil(len(found) / 4)
    work = Execution(world.index, [query], CPU)
    dropped = ask(work, system, Question((found.doc_ids[-1],)))
    assert dropped.method == "placeholder"
    assert f"was dropped by see: it is not among the {count} of {len(found)}" in dropped.notes[0]
    kept = ask(work, system, Question((found.doc_ids[0],)))
    assert kept.score == found.scores[0]
    assert kept.method != "placeholder"


def test_the_commands_take_it(world, run, tmp_path):
    spec = world.rankers["crossencoder"]
    given = (
        "--queries",
        world.folder / "queries.tsv",
        "--index",
        world.folder / "my.index",
        "--device",
        "cpu",
    )
    plain, given = given[:4], (*given, "--precision", "fp32", "--threads", 1)
    done = run("search", "--system", f"bm25 % 20 >> see(keep=0.5) >> {spec}", *given, "--out", "a.run")
    assert done.returncode == 0, done.stderr
    assert run("search", "--system", "bm25 % 20", *plain, "--out", "first.run").returncode == 0
    again = run(
        "rerank", "--run", "first.run", "--ranker", spec, "--see", 0.5, *given, "--out", "b.run", "--json"
    )
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    first = rh.read_run(tmp_path / "first.run")
    assert told["passages"] == sum(math.ceil(len(ranking) / 2) for ranking in first.values())
    assert rh.read_run(tmp_path / "a.run").to_dict() == rh.read_run(tmp_path / "b.run").to_dict()
    refused = run("rerank", "--run", "first.run", "--ranker", spec, "--see", 1.5, *given, "--out", "c.run")
    assert refused.returncode == 2
    assert "give the share of documents that the ranker reads" in refused.stderr
