"""Contents of a PAIRS file."""

from rankhouse.io.pairs import LabelledPair
from rankhouse.labels.thresholds import summarise_pairs


def a_pair(query, document, label, passage=0):
    return LabelledPair(query, f"about {query}", document, passage, "text", label)


PAIRS = [
    *(a_pair("q1", "d1", 1), a_pair("q1", "d2", 1), a_pair("q1", "d3", 0)),
    *(a_pair("q2", "d1", 0), a_pair("q3", "d4", 1, 0), a_pair("q3", "d4", 1, 1)),
]


def test_pairs_and_queries_are_counted():
    found = summarise_pairs(PAIRS)
    assert (found.pairs, found.relevant, found.queries, found.queries_relevant, found.most) == (6, 4, 3, 2, 2)
    assert (found.precision, found.recall) == (None, None)


def test_judgements_say_how_many_are_right_and_how_much_is_missed():
    found = summarise_pairs(PAIRS, {"q1": {"d1": 1, "d3": 1}, "q3": {"d4": 2}, "q9": {"d1": 1}})
    assert (found.right, found.found, found.wanted) == (3, 2, 4)
    assert (found.precision, found.recall) == (3 / 4, 2 / 4)


def test_an_empty_file_has_no_shares():
    found = summarise_pairs([], {"q1": {"d1": 1}})
    assert (found.pairs, found.precision, found.recall) == (0, None, 0)
