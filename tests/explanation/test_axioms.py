"""Axioms on pairs made for them, on random texts, and counted over runs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankhouse.core.nouns import Document, Query
from rankhouse.explanation.axioms import AXIOMS, DocumentPairs
from rankhouse.explanation.term_features import TermReader, measure
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build

# Makes "rare" rarer than "ship" and "port", which are about equally frequent.
BACKGROUND = ["ship port"] * 6 + ["rare"] + ["sand"] * 20
VECTORS = {
    "ship": "1 0",
    "boat": "0.9 0.1",
    "bread": "0.1 0.9",
    "sand": "0 1",
    "port": "0.7 0.7",
    "rare": "0.5 0.5",
}


def index_of(texts, folder):
    documents = [Document(f"d{i}", text) for i, text in enumerate([*texts, *BACKGROUND])]
    build(documents, folder, BuildOptions(analyzer="whitespace", workers=1))
    return Index.open(folder)


def features_of(texts, query, folder, vectors=""):
    asked, ids = Query("q", query), [f"d{i}" for i in range(len(texts))]
    return TermReader(index_of(texts, folder), ids, [asked], vectors).features(asked, ids)


def preference(axiom, query, first, second, folder, tolerance=0.1, vectors=""):
    """Ask an axiom about two texts, in both orders: the answers must be opposite."""
    features = features_of([first, second], query, folder, vectors)
    ways = np.array([0, 1]), np.array([1, 0])
    one, other = AXIOMS[axiom].prefer(DocumentPairs(features, *ways, tolerance)).tolist()
    assert one == -other
    return one


FILL = "sand " * 10
CASES = [
    # (axiom, query, the text it wants above, the other)
    ("TFC1", "ship", f"ship ship {FILL}", f"ship sand {FILL}"),
    ("TFC1", "ship port", f"ship ship port {FILL}", f"ship port sand {FILL}"),
    ("TFC3", "ship port", f"ship port {FILL}", f"ship ship {FILL}"),
    ("TFC3", "ship port rare", f"rare ship ship port {FILL}", f"rare port port port {FILL}"),
    ("M-TDC", "ship rare", f"rare rare ship {FILL}", f"rare ship ship {FILL}"),
    ("M-TDC", "rare ship", f"rare sand {FILL}", f"ship sand {FILL}"),
    ("LNC1", "ship", f"ship {FILL}", f"ship {FILL}{FILL}"),
    ("TF-LNC", "ship", f"ship ship {FILL}", f"ship {FILL}"),
    ("TF-LNC", "ship", f"ship ship ship ship ship ship {FILL}", f"ship {FILL}"),
    ("LB1", "ship port", f"port ship {FILL}{FILL}", f"port {FILL}{FILL}"),
    ("LB1", "ship", f"ship {FILL}{FILL}{FILL}", "sand"),
    ("PROX1", "ship port", f"ship port {FILL}", f"ship sand port {FILL}"),
    ("PROX1", "ship port rare", f"ship port {FILL}", f"ship sand port {FILL}"),
    ("PROX2", "ship port", f"ship sand port {FILL}", f"sand sand ship port {FILL}"),
    ("PROX3", "ship port", f"sand ship port {FILL}", f"port ship {FILL}"),
    ("PROX3", "ship port", f"ship port {FILL}", f"{FILL} ship port"),
    ("PROX4", "ship port", f"ship port {FILL}", f"ship sand port {FILL}"),
    ("PROX4", "ship port", f"ship port {FILL} ship port", f"ship port {FILL} ship sand port"),
    ("PROX5", "ship port", f"ship port {FILL}", f"ship port {FILL} ship"),
    ("STMC1", "ship", "ship boat boat", "ship bread sand"),
    ("STMC1", "ship", "boat", "bread"),
    ("STMC2", "ship", "ship sand sand", "boat sand sand"),
    ("STMC2", "ship", "ship sand", "boat boat sand sand"),
]
SILENT = [
    ("TFC1", "ship", f"ship ship {FILL}", f"ship {FILL}{FILL}"),  # not equally long
    ("TFC1", "ship port", f"ship ship {FILL}", f"port port {FILL}"),  # each says one word more often
    ("TFC3", "ship rare", f"ship rare {FILL}", f"ship ship {FILL}"),  # not equally rare
    ("TFC3", "ship port", f"ship port {FILL}", f"ship ship ship {FILL}"),  # not the same sum
    ("TFC3", "ship port rare", f"ship port rare {FILL}", f"ship ship sand {FILL}"),  # a third word differs
    ("M-TDC", "ship port", f"ship ship port {FILL}", f"ship port port {FILL}"),  # equally rare
    ("M-TDC", "ship rare", f"rare rare ship {FILL}", f"rare sand ship {FILL}"),  # not swapped
    (
        "M-TDC",
        "ship ship rare",
        f"rare rare ship {FILL}",
        f"rare ship ship {FILL}",
    ),  # the query asks for less
    ("LNC1", "ship", f"ship {FILL}", f"ship ship {FILL}{FILL}"),  # not the same words
    ("LNC1", "ship", f"ship {FILL}", f"ship sand {FILL}"),  # about equally long
    ("TF-LNC", "ship", f"ship ship {FILL}{FILL}", f"ship {FILL}"),  # longer by other words too
    ("TF-LNC", "ship port", f"ship ship port port {FILL}", f"ship port {FILL}"),  # longer by two words
    ("LB1", "ship port", f"ship {FILL}", f"port port port {FILL}"),  # each has a word of its own
    ("LB1", "ship port", f"ship {FILL}", f"port port {FILL}"),
    ("LB1", "ship", f"ship ship {FILL}", f"ship {FILL}"),  # both have it
    ("PROX1", "ship port rare", f"ship port {FILL}", f"ship sand rare {FILL}"),  # not the same words
    ("PROX1", "ship", f"ship {FILL}", f"sand ship {FILL}"),  # one word is close to nothing
    ("PROX2", "ship port", f"ship {FILL}", f"{FILL} ship"),
    ("PROX3", "ship port", f"port ship {FILL}", f"port sand ship {FILL}"),  # neither has the phrase
    ("PROX4", "ship port rare", f"ship port {FILL}", f"ship sand port {FILL}"),  # a word is missing
    ("PROX5", "ship port rare", f"ship port {FILL}", f"ship sand port {FILL}"),
    ("STMC1", "ship", "ship boat boat", "ship ship bread"),  # not the same query words
    ("STMC1", "ship", "ship unheard", "ship bread"),  # no vectors
    ("STMC2", "ship", "ship sand sand", "boat boat boat"),  # said more often than its length allows
    ("STMC2", "ship port", "ship sand sand", "boat sand port"),  # another query word differs
]


@pytest.fixture
def vectors(tmp_path):
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {numbers}\n" for word, numbers in VECTORS.items()))
    return str(path)


@pytest.mark.parametrize(("axiom", "query", "wanted", "other"), CASES)
def test_wants_the_first_of_a_made_pair(axiom, query, wanted, other, tmp_path, vectors):
    assert preference(axiom, query, wanted, other, tmp_path / "index", vectors=vectors) == 1


@pytest.mark.parametrize(("axiom", "query", "first", "second"), SILENT)
def test_is_silent_where_it_does_not_apply(axiom, query, first, second, tmp_path, vectors):
    assert preference(axiom, query, first, second, tmp_path / "index", vectors=vectors) == 0


def test_every_axiom_has_a_pair_that_it_orders_and_one_on_which_it_is_silent():
    assert {axiom for axiom, *_ in CASES} == set(AXIOMS)
    assert {axiom for axiom, *_ in SILENT} == set(AXIOMS)


def test_tolerance_decides_what_is_about_equal(tmp_path):
    texts = f"ship ship {FILL}", f"ship {FILL}sand sand"
    assert preference("TFC1", "ship", *texts, tmp_path / "a", tolerance=0.1) == 1
    assert preference("TFC1", "ship", *texts, tmp_path / "b", tolerance=0.0) == 0


def test_axioms_of_meaning_are_silent_without_vectors(tmp_path):
    assert preference("STMC1", "ship", "ship boat boat", "ship bread sand", tmp_path / "a") == 0
    assert preference("STMC2", "ship", "ship sand", "boat sand", tmp_path / "b") == 0


WORDS = st.lists(st.sampled_from(["a", "b", "c", "x", "y"]), min_size=0, max_size=14)


def slow_proximity(text, query):
    """The numbers of PROX1 to PROX5 by their words, one occurrence at a time."""
    words = sorted(set(query))
    places = {w: [i for i, t in enumerate(text) if t == w] for w in words if w in text}
    if len(places) < 2:
        return None
    names = list(places)
    pairs = [(v, w) for i, v in enumerate(names) for w in names[i + 1 :]]
    distance = np.mean(
        [np.mean([abs(i - j) - 1 for i, j in product(places[v], places[w])]) for v, w in pairs]
    )
    groups = []
    for at in sorted(i for where in places.values() for i in where):
        near = [min(where, key=lambda i: (abs(i - at), i)) for where in places.values()]
        groups.append((min(at, *near), max(at, *near)))
    others = [sum(text[i] not in words for i in range(low, high + 1)) for low, high in groups]
    phrase = [i for i in range(len(text) - len(query) + 1) if text[i : i + len(query)] == query]
    first = sum(where[0] for where in places.values())
    span = np.mean([high - low for low, high in groups])
    return distance, first, min(phrase, default=np.inf), min(others), others.count(min(others)), span


@given(text=WORDS, query=st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_closeness_is_what_counting_by_hand_gives(text, query):
    number = {word: i for i, word in enumerate("abcxy")}
    quick = measure(np.array([number[w] for w in text], np.int64), np.array([number[w] for w in query]))
    slow = slow_proximity(text, query)
    if slow is None:
        assert quick == measure(np.empty(0, np.int64), np.array([0, 1]))
    else:
        assert np.allclose(quick, slow)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(list(VECTORS)), min_size=1, max_size=12), min_size=2, max_size=5),
    query=st.lists(st.sampled_from(["ship", "port", "rare", "bread"]), min_size=1, max_size=4),
)
def test_swapping_two_documents_negates_every_axiom(texts, query, tmp_path_factory, vectors):
    folder = tmp_path_factory.mktemp("random") / "index"
    features = features_of([" ".join(text) for text in texts], " ".join(query), folder, vectors)
    first, second = np.triu_indices(len(texts), 1)
    for axiom in AXIOMS.values():
        one = axiom.prefer(DocumentPairs(features, first, second))
        other = axiom.prefer(DocumentPairs(features, second, first))
        assert (one == -other).all()
        assert set(one.tolist()) <= {-1, 0, 1}
        itself = axiom.prefer(DocumentPairs(features, first, first))
        assert not itself.any()


def test_a_long_document_is_measured_quickly_enough_to_be_measured_at_all(tmp_path):
    """A hundred thousand words with ten thousand matches: distances are sums, not tables of all pairs."""
    text = np.tile(np.arange(20), 5_000)
    found = measure(text, np.array([1, 2]))
    assert found.gap == 0
    assert found.first == 3
