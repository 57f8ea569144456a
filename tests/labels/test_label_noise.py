"""A known share of the judgements is moved to documents that are not relevant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.run import Run
from rankhouse.labels.label_noise import move_judgements

QRELS = {f"q{q}": {f"d{q}-{d}": 1 + d % 2 for d in range(4)} | {f"d{q}-8": 0} for q in range(10)}
RUN = Run.of((f"q{q}", f"d{q}-{d}", float(20 - d)) for q in range(10) for d in range(12))


def relevant(qrels):
    return {(q, d) for q, grades in qrels.items() for d, grade in grades.items() if grade > 0}


@given(share=st.sampled_from([0, 0.1, 0.25, 0.5, 1]), seed=st.integers(0, 5))
def test_as_many_judgements_are_wrong_as_asked_and_none_is_lost(share, seed):
    noisy = move_judgements(QRELS, RUN, share, depth=12, seed=seed)
    before, after = relevant(QRELS), relevant(noisy.qrels)
    assert (noisy.relevant, noisy.wrong, noisy.missing) == (40, round(40 * share), 0)
    assert len(after) == 40
    assert len(after - before) == len(before - after) == noisy.wrong
    assert all(d in RUN[q].doc_ids for q, d in after)
    grades = sorted(g for row in noisy.qrels.values() for g in row.values() if g)
    assert grades == sorted(g for row in QRELS.values() for g in row.values() if g)


def test_without_a_share_the_judgements_are_as_they_were():
    assert move_judgements(QRELS, RUN, 0).qrels == QRELS


def test_a_larger_share_holds_what_a_smaller_one_does_and_a_seed_draws_anew():
    wrong = [
        relevant(move_judgements(QRELS, RUN, share).qrels) - relevant(QRELS) for share in (0.1, 0.2, 0.5)
    ]
    assert wrong[0] < wrong[1] < wrong[2]
    assert relevant(move_judgements(QRELS, RUN, 0.2, seed=1).qrels) - relevant(QRELS) != wrong[1]


def test_wrong_documents_come_from_the_first_of_the_query():
    noisy = move_judgements(QRELS, RUN, 1, depth=8)
    assert relevant(noisy.qrels) == {(f"q{q}", f"d{q}-{d}") for q in range(10) for d in range(4, 8)}


def test_what_cannot_be_moved_is_counted():
    noisy = move_judgements(QRELS, RUN, 1, depth=6)
    assert (noisy.wrong, noisy.missing) == (20, 20)
    assert len(relevant(noisy.qrels)) == 40


def test_shares_and_runs_that_make_no_sense_are_refused():
    with pytest.raises(WrongUse, match="from 0"):
        move_judgements(QRELS, RUN, 1.5)
    with pytest.raises(BadData, match="none of the 10 judged queries"):
        move_judgements(QRELS, Run.of([("other", "d1", 1.0)]), 0.5)
