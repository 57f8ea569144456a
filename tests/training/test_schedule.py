"""Learning rates over time."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.training.optimizer import SCHEDULES, Moment


def factors(text, steps, **moment):
    schedule = notation.make(text, SCHEDULES, "schedule")
    return [schedule(Moment(step, steps, **{"epoch": 0} | moment)) for step in range(steps)]


def test_constant_is_constant_after_its_warm_up():
    assert factors("constant", 4) == [1, 1, 1, 1]
    assert factors("constant(warmup=4)", 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_linear_rises_then_falls_and_no_step_is_wasted():
    assert factors("linear(warmup=0.2)", 10) == pytest.approx(
        [0.5, 1, 1, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    )
    assert factors("linear(warmup=0)", 4) == [1, 0.75, 0.5, 0.25]
    assert min(factors("linear(warmup=3)", 3)) > 0


def test_linear_is_the_usual_line_one_step_on_in_the_warm_up():
    from transformers import get_linear_schedule_with_warmup

    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    line = get_linear_schedule_with_warmup(optimiser, 5, 40)
    usual = []
    for _ in range(40):
        usual.append(line.get_last_lr()[0])
        optimiser.step()
        line.step()
    ours = factors("linear(warmup=5)", 40)
    assert ours[:4] == pytest.approx(usual[1:5])
    assert ours[5:] == pytest.approx(usual[5:])


def test_step_falls_with_the_epochs():
    schedule = notation.make("step(every=5, factor=0.75)", SCHEDULES, "schedule")
    assert [schedule(Moment(0, 100, epoch)) for epoch in (0, 4, 5, 9, 10)] == [1, 1, 0.75, 0.75, 0.75**2]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(0, 4), st.sampled_from([0.0, 1.5]))
@settings(max_examples=150, deadline=None)
def test_plateau_is_torchs(values, patience, gain):
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    oracle = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimiser, mode="max", factor=0.5, patience=patience, threshold=gain, threshold_mode="abs", eps=0
    )
    ours = notation.make(f"plateau(factor=0.5, patience={patience}, gain={gain})", SCHEDULES, "schedule")
    for seen in range(1, len(values) + 1):
        oracle.step(float(values[seen - 1]))
        assert ours(Moment(0, 1, 0, values[:seen])) == pytest.approx(optimiser.param_groups[0]["lr"])


@pytest.mark.parametrize(
    "text",
    ["linear(warmup=-1)", "constant(warmup=1.5)", "step(every=0, factor=0.5)", "plateau(factor=1)", "cosine"],
)
def test_senseless_schedules_are_refused(text):
    with pytest.raises(WrongUse):
        notation.make(text, SCHEDULES, "schedule")
