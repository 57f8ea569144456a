"""Two runs, one question: who is right where the other is not."""

import re
from fractions import Fraction
from math import comb

import msgspec
import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation.report import write_wins_chart
from rankhouse.evaluation.significance import WinCounts, counts_table, paired_wins, ranges_table, record

# ten queries; "a" is right in q0 to q5, "b" in q4 to q7; scores of "a" fall from q0 to q9
RIGHT_A, RIGHT_B = range(6), range(4, 8)
QRELS = {f"q{i}": {"good": 1, "bad": 0} for i in range(10)} | {"q10": {"bad": 0}}


def a_run(right, start):
    rows = [(f"q{i}", "good" if i in right else "bad", start - i) for i in range(10)]
    return Run.of(rows + [(f"q{i}", "late", -100) for i in range(10)])


@pytest.fixture
def found():
    return paired_wins(a_run(RIGHT_A, 10), a_run(RIGHT_B, 0), QRELS, ("a", "b"))


def test_queries_are_counted_by_who_is_right(found):
    assert found.counts == WinCounts(neither=2, only_first=4, only_second=2, both=2)


def test_ranges_are_fifths_by_the_first_runs_scores(found):
    assert [one.counts for one in found.ranges] == [
        WinCounts(0, 2, 0, 0),
        WinCounts(0, 2, 0, 0),
        WinCounts(0, 0, 0, 2),
        WinCounts(0, 0, 2, 0),
        WinCounts(2, 0, 0, 0),
    ]
    assert [(one.nearest, one.farthest) for one in found.ranges] == [(10, 9), (8, 7), (6, 5), (4, 3), (2, 1)]


def test_a_query_that_a_run_lacks_is_wrong_and_farthest():
    first = a_run(RIGHT_A, 10).restrict([f"q{i}" for i in range(1, 10)])
    found = paired_wins(first, a_run(range(10), 0), QRELS, ("a", "b"))
    assert found.counts == WinCounts(0, 0, 5, 5)
    assert found.ranges[-1].farthest == float("-inf")
    assert msgspec.json.encode(record(found)["ranges"][-1]["farthest"]) == b"null"


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 3), (1, 9), (196, 414), (700, 2)])
def test_p_is_the_exact_sign_tests(first, second):
    tail = sum(comb(first + second, count) for count in range(min(first, second) + 1))
    expected = min(1.0, 2 * float(Fraction(tail, 2 ** (first + second))))
    assert WinCounts(10, first, second, 5).p == pytest.approx(expected, rel=1e-9)


def test_tables_say_all_counts(found):
    rows = {row[0]: row[1:] for row in counts_table(found).rows}
    assert rows["only a right"] == ("4", "40.0%")
    assert len(ranges_table(found).rows) == 5
    assert record(found) | {"ranges": []} == {
        "first": "a",
        "second": "b",
        "queries": 10,
        "p": pytest.approx(0.6875),
        "neither": 2,
        "only_first": 4,
        "only_second": 2,
        "both": 2,
        "ranges": [],
    }


@pytest.mark.slow
def test_the_chart_has_a_bar_for_each_kind_in_each_range_and_the_same_bytes_again(found, tmp_path):
    for name in ("one.svg", "two.svg"):
        write_wins_chart(found, tmp_path / name)
    svg = (tmp_path / "one.svg").read_text()
    assert svg == (tmp_path / "two.svg").read_text()
    assert {"only a", "only b", "both right", "both wrong"} <= set(re.findall(r">([^<>\n]+)</text>", svg))
    write_wins_chart(found, tmp_path / "three.png")
    assert (tmp_path / "three.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(WrongUse, match=r"\.png or \.svg"):
        write_wins_chart(found, tmp_path / "four.pdf")


def test_too_few_queries_for_the_ranges_are_refused():
    with pytest.raises(BadData, match="too few for 11 ranges"):
        paired_wins(a_run((), 1), a_run((), 1), QRELS, ("a", "b"), ranges=11)
    with pytest.raises(WrongUse, match="one or more"):
        paired_wins(a_run((), 1), a_run((), 1), QRELS, ("a", "b"), ranges=0)
