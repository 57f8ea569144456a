"""Span corruption: what is cut out is said again, all rows alike in size, nothing lost."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.training.pretraining_data import Corruption, Specials

SPECIALS = Specials(1, np.arange(9_999, 9_899, -1))


def put_together(inputs, targets):
    """Read a row back: each sentinel of the input is replaced by what the target says behind it."""
    said, sentinel = {}, None
    for token in targets[:-1].tolist():
        if token in SPECIALS.sentinels:
            sentinel = token
            said[sentinel] = []
        else:
            said[sentinel].append(token)
    whole = []
    for token in inputs[:-1].tolist():
        whole += said.pop(token) if token in SPECIALS.sentinels else [token]
    assert not said, "the target says spans that the input has no place for"
    return whole


@given(
    length=st.integers(8, 200),
    density=st.floats(0.05, 0.5),
    span=st.floats(1, 6),
    seed=st.integers(0, 1000),
)
def test_input_and_target_together_are_the_text_again(length, density, span, seed):
    corruption = Corruption(length, density, span)
    rng = np.random.default_rng(seed)
    rows = rng.integers(10, 5_000, (3, corruption.tokens))
    inputs, targets = corruption.apply(rows, SPECIALS, rng)
    assert inputs.shape == (3, inputs.shape[1])
    assert inputs.shape[1] <= length
    assert targets.shape == (3, corruption.targets)
    assert (inputs[:, -1] == 1).all()
    assert (targets[:, -1] == 1).all()
    for row in range(3):
        assert put_together(inputs[row], targets[row]) == rows[row].tolist()


def test_t5s_own_sizes_come_out():
    """512 tokens with 15 % in spans of 3: 568 before, 114 to be said (Raffel et al., their code)."""
    corruption = Corruption(512, 0.15, 3.0)
    assert (corruption.tokens, corruption.targets, corruption.spans) == (568, 114, 28)


def test_the_share_and_the_spans_are_those_asked_for():
    corruption = Corruption(512, 0.15, 3.0)
    cut = corruption.masks(200, np.random.default_rng(0))
    assert (cut.sum(1) == 85).all()
    begins = cut & ~np.pad(cut, ((0, 0), (1, 0)))[:, :-1]
    assert (begins.sum(1) == 28).all()
    assert not cut[:, 0].any()
    assert cut[:, -1].all()
    assert np.ptp(cut[:, 20:-20].mean(0)) < 0.2  # away from the ends alike


def test_sentinels_count_from_the_first_in_every_row():
    corruption = Corruption(40)
    rows = np.full((4, corruption.tokens), 7)
    inputs, targets = corruption.apply(rows, SPECIALS, np.random.default_rng(1))
    for side in (inputs, targets):
        for row in side:
            seen = [token for token in row.tolist() if token > 9_000]
            assert seen == SPECIALS.sentinels[: corruption.spans].tolist()


@pytest.mark.parametrize("wrong", [{"density": 0}, {"density": 1}, {"span": 0.5}, {"length": 3}])
def test_numbers_that_cut_nothing_or_all_are_refused(wrong):
    with pytest.raises(WrongUse, match="T5 was trained with"):
        Corruption(**wrong)
