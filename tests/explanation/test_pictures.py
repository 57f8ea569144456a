"""Pictures of what is inside rankers: vectors of pairs, samCNN's attention; and gain by difficulty."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

torch = pytest.importorskip("torch")

from rankhouse.cli.main import cli  # noqa: E402 - torch first
from rankhouse.core.errors import BadData, WrongUse  # noqa: E402
from rankhouse.core.nouns import Document, Pair, Passage, Query  # noqa: E402
from rankhouse.core.run import Run  # noqa: E402
from rankhouse.evaluation.compare import compare  # noqa: E402
from rankhouse.evaluation.report import write_chart  # noqa: E402
from rankhouse.explanation.pictures import attention_over, filter_places, map_pairs, pair_vectors, project  # noqa: E402  # noqa: E402
from rankhouse.index.lexical.build import BuildOptions, build  # noqa: E402
from rankhouse.io.trec import write_qrels, write_run  # noqa: E402
from rankhouse.models.knrm import KNRMDesign  # noqa: E402
from rankhouse.models.ranker import NeuralRanker  # noqa: E402
from rankhouse.models.samcnn import SamCNNDesign  # noqa: E402
from rankhouse.nn.machine import Compute  # noqa: E402

WORDS = [f"w{i}" for i in range(30)]
QUERY = Query("q", "w1 w2 w3")


def posts(n, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(3, 12))) for _ in range(n)]


def pairs_of(texts):
    return [Pair(QUERY, Passage(f"d{i}", 0, text)) for i, text in enumerate(texts)]


def ranker_of(attention, texts):
    design = SamCNNDesign(attention=attention, width=16, filters=12, hidden=8, final=6)
    return NeuralRanker(design.fresh(texts, seed=1), Compute("fp32", torch.device("cpu"), 1))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("attention", [None, "query", "position"])
def test_the_hidden_state_is_what_the_last_line_decides_by(attention):
    texts = posts(20)
    ranker, pairs = ranker_of(attention, texts), pairs_of(texts)
    states = torch.from_numpy(pair_vectors(ranker, pairs))
    assert states.shape == (20, 6)
    with torch.inference_mode():
        scores = ranker.model.decide(states).log_softmax(1)[:, 1]
    assert np.allclose(scores.numpy(), ranker.score(pairs), atol=1e-6)


def test_places_of_the_maxima_are_those_of_the_model():
    texts = posts(5)
    ranker = ranker_of("query", texts)
    for pair in pairs_of(texts):
        with torch.inference_mode():
            maxima = ranker.model.attended_maxima(ranker.model.encode([pair]))[0].numpy()
        assert np.allclose(filter_places(ranker.model, pair).max(axis=2).clip(0), maxima, atol=1e-6)


def test_attention_is_the_cosine_for_patt_and_a_share_of_filters_for_qatt():
    texts = ["w1 w9 w2"]
    by_position = attention_over(ranker_of("position", posts(20)), pairs_of(texts)[0])
    assert by_position.query_words == ("w1", "w2", "w3")
    assert by_position.post_words == ("w1", "w9", "w2")
    assert np.allclose([by_position.weights[0, 0], by_position.weights[1, 2]], 1, atol=1e-6)  # the same word
    by_query = attention_over(ranker_of("query", posts(20)), pairs_of(texts)[0])
    assert (by_query.weights >= 0).all()
    assert (by_query.weights.sum(axis=1) <= 1 + 1e-6).all()


def test_attention_is_refused_where_there_is_none():
    texts = posts(20)
    with pytest.raises(WrongUse, match="attention=None"):
        attention_over(ranker_of(None, texts), pairs_of(texts)[0])
    knrm = NeuralRanker(
        KNRMDesign(width=8, min_count=1).fresh(texts), Compute("fp32", torch.device("cpu"), 1)
    )
    with pytest.raises(WrongUse, match="a knrm has no attention"):
        attention_over(knrm, pairs_of(texts)[0])
    with pytest.raises(WrongUse, match="a knrm has no vector of a pair"):
        pair_vectors(knrm, pairs_of(texts))
    with pytest.raises(BadData, match="no words"):
        attention_over(ranker_of("position", texts), Pair(QUERY, Passage("d", 0, "")))


class Planted:
    """An encoder whose vectors of relevant texts lie together, far from the others."""

    def encode_passages(self, texts):
        random = np.random.default_rng(0)
        centre = np.array([[9.0 * text.startswith("good"), 0, 0] for text in texts])
        return (centre + random.normal(size=centre.shape)).astype(np.float32)

    def encode_queries(self, texts):
        return self.encode_passages(texts)

    def score(self, pairs):
        return np.zeros(len(pairs), np.float32)


@pytest.mark.slow
def test_a_map_keeps_neighbours_and_says_how_many_are_relevant():
    pytest.importorskip("sklearn")
    texts = [f"good {i}" for i in range(15)] + [f"bad {i}" for i in range(45)]
    marks = [text.startswith("good") for text in texts]
    one = map_pairs("planted", Planted(), pairs_of(texts), marks)
    assert one.neighbours > 0.95
    assert math.isclose(one.expected, 14 / 59)
    near = [np.argsort(((one.points - point) ** 2).sum(axis=1))[1:6] for point in one.points[:15]]
    assert np.mean([rows < 15 for rows in near]) > 0.9
    again = map_pairs("planted", Planted(), pairs_of(texts), marks)
    assert (one.points == again.points).all()
    assert math.isnan(map_pairs("none", Planted(), pairs_of(texts), [False] * 60).neighbours)


@pytest.mark.slow
def test_vectors_that_know_nothing_have_the_neighbours_of_chance():
    random = np.random.default_rng(5)
    marks = random.random(400) < 0.3

    class Noise(Planted):
        def encode_passages(self, texts):
            return random.normal(size=(len(texts), 8)).astype(np.float32)

    pytest.importorskip("sklearn")
    one = map_pairs("noise", Noise(), pairs_of(posts(400)), marks.tolist())
    assert abs(one.neighbours - one.expected) < 0.04


def test_maps_of_too_few_or_of_one_and_the_same_point():
    pytest.importorskip("sklearn")
    with pytest.raises(BadData, match="too few"):
        map_pairs("few", Planted(), pairs_of(posts(4)), [True] * 4)
    assert not project(np.ones((10, 3), np.float32)).any()


@pytest.fixture
def house(tmp_path):
    texts = posts(30)
    build([Document(f"d{i}", t) for i, t in enumerate(texts)], tmp_path / "i", BuildOptions(workers=1))
    for name, attention in (("bicnn", None), ("qatt", "query"), ("patt", "position")):
        ranker_of(attention, texts).save(tmp_path / name)
    write_run(Run.of([("q", f"d{i}", 30.0 - i) for i in range(30)]), tmp_path / "r.run", "t")
    write_qrels({"q": {f"d{i}": int(i % 3 == 0) for i in range(30)}}, tmp_path / "qrels.txt")
    (tmp_path / "q.tsv").write_text("q\tw1 w2 w3\n")
    return tmp_path


def run_figure(house, *words):
    common = ["--queries", "q.tsv", "--query", "q", "--index", "i", "--threads", "1"]
    return CliRunner().invoke(
        cli, ["figure", words[0], *common, *words[1:]]
    )  # of two options the last counts


@pytest.mark.slow
def test_the_command_draws_the_same_bytes_each_time(house, monkeypatch):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(house)
    vectors = ["vectors", "--ranker", "bicnn", "--ranker", "qatt", "--ranker", "patt", "--run", "r.run"]
    attention = ["attention", "--ranker", "patt", "--doc", "d0", "--doc", "d1"]
    for words in ([*vectors, "--qrels", "qrels.txt"], attention):
        for end in ("svg", "png"):
            for name in ("one", "two"):
                done = run_figure(house, *words, "--out", f"{name}.{end}", "--json")
                assert done.exit_code == 0, done.output
            assert (house / f"one.{end}").read_bytes() == (house / f"two.{end}").read_bytes()
        shown = json.loads(done.stdout)
        assert len(shown) == len([word for word in words if word in {"--ranker", "--doc"}]) - (
            words is attention
        )
    drawn = (house / "one.svg").read_text()
    assert "no explanation of its score" in drawn


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["vectors", "--ranker", "patt"], "needs --run"),
        (
            ["vectors", "--ranker", "patt", "--run", "r.run", "--qrels", "qrels.txt", "--doc", "d0"],
            "--doc would",
        ),
        (["attention", "--ranker", "patt"], "one --doc ID or more"),
        (["attention", "--ranker", "patt", "--doc", "d0", "--seed", "2"], "--seed would change nothing"),
        (["attention", "--ranker", "patt", "--doc", "nowhere"], 'no document "nowhere"'),
        (["attention", "--ranker", "bicnn", "--doc", "d0"], "attention=None"),
        (["attention", "--ranker", "patt", "--doc", "d0", "--query", "Q"], 'did you mean "q"?'),
        (
            ["vectors", "--ranker", "patt", "--run", "other.run", "--qrels", "qrels.txt"],
            'no query "q" in other.run',
        ),
    ],
)
def test_wrong_use_of_the_command_is_explained(house, monkeypatch, words, said):
    monkeypatch.chdir(house)
    write_run(Run.of([("q2", "d0", 1.0)]), house / "other.run", "t")
    done = run_figure(house, *words, "--out", "x.png")
    assert isinstance(done.exception, WrongUse)
    assert said in str(done.exception)
    assert not (house / "x.png").exists()


def test_a_run_of_another_collection_is_refused(house, monkeypatch):
    monkeypatch.chdir(house)
    write_run(Run.of([("q", "d0", 2.0), ("q", "elsewhere", 1.0)]), house / "other.run", "t")
    words = ["vectors", "--ranker", "patt", "--run", "other.run", "--qrels", "qrels.txt", "--out", "x.png"]
    done = run_figure(house, *words)
    assert isinstance(done.exception, BadData)
    assert 'no document "elsewhere"' in str(done.exception)


def test_gain_by_difficulty_is_drawn_from_the_same_numbers_each_time(tmp_path):
    pytest.importorskip("matplotlib")
    random = np.random.default_rng(1)
    qrels = {f"q{i}": {"a": 1, "b": 1} for i in range(40)}
    runs = {
        name: Run.of([(q, d, float(random.random())) for q in qrels for d in "abcdef"])
        for name in ("old", "new")
    }
    comparison = compare(runs, qrels, "AP", "old")
    for name in ("one.svg", "two.svg", "one.png", "two.png"):
        write_chart(comparison, "new", "AP", tmp_path / name, "difficulty")
    for end in ("svg", "png"):
        assert (tmp_path / f"one.{end}").read_bytes() == (tmp_path / f"two.{end}").read_bytes()
    drawn = (tmp_path / "one.svg").read_text()
    assert "gain of new over old, by difficulty" in drawn
    assert "4 groups of equal size" in drawn
    assert "most that can be gained or lost" in drawn
    with pytest.raises(WrongUse, match="no baseline"):
        write_chart(compare(runs, qrels, "AP"), "new", "AP", tmp_path / "x.svg", "difficulty")
