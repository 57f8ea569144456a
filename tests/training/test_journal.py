"""The log and its picture."""

import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.training.log import TrainingLog, read_log, write_curve

LOG = [
    {"step": 0, "epoch": 0, "measure": "AP", "value": 0.3, "first_stage": 0.4, "seconds": 0.1},
    {"step": 10, "epoch": 0, "loss": 0.9, "rate": 0.1, "norm": 1.0, "seconds": 0.2},
    {"step": 20, "epoch": 0, "loss": 0.5, "rate": 0.1, "norm": 1.0, "seconds": 0.3},
    {"step": 20, "epoch": 1, "measure": "AP", "value": 0.6, "first_stage": 0.4, "seconds": 0.4},
]


def test_lines_are_read_back_and_those_behind_a_checkpoint_forgotten(tmp_path):
    log_file = TrainingLog(tmp_path / "log.jsonl")
    log_file.forget_after(-1)
    for entry in LOG:
        log_file.write(**entry)
    assert read_log(tmp_path / "log.jsonl") == LOG
    log_file.forget_after(10)
    assert read_log(tmp_path / "log.jsonl") == LOG[:2]


def test_a_validation_that_a_checkpoint_does_not_know_is_forgotten(tmp_path):
    log_file = TrainingLog(tmp_path / "log.jsonl")
    log_file.forget_after(-1)
    for entry in LOG:
        log_file.write(**entry)
    log_file.forget_after(20, validated=[0])  # killed between the line of step 20 and its checkpoint
    assert read_log(tmp_path / "log.jsonl") == LOG[:3]
    log_file.forget_after(20, validated=[0, 20])
    assert read_log(tmp_path / "log.jsonl") == LOG[:3]


def test_a_last_line_cut_off_is_passed_over_but_no_other(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 1}\n{"st')
    assert read_log(path) == [{"step": 1}]
    path.write_text('{"st\n{"step": 1}\n')
    with pytest.raises(BadData, match="line 1"):
        read_log(path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_the_same_log_gives_the_same_picture(tmp_path, kind):
    for name in "ab":
        write_curve(LOG, tmp_path / f"{name}.{kind}")
    drawn = (tmp_path / f"a.{kind}").read_bytes()
    assert drawn == (tmp_path / f"b.{kind}").read_bytes()
    write_curve(LOG[:3], tmp_path / f"c.{kind}")
    assert drawn != (tmp_path / f"c.{kind}").read_bytes()
    if kind == "svg":
        assert b"best 0.6000 at step 20; first stage 0.4000" in drawn


def test_a_loss_that_was_logged_once_is_seen_at_its_whole_step(tmp_path):
    for name, log in (("one", LOG[1:2]), ("two", LOG[1:3])):
        write_curve(log, tmp_path / f"{name}.svg")
    one, two = ((tmp_path / f"{name}.svg").read_text() for name in ("one", "two"))
    assert (one.count("<use"), two.count("<use")) == (1, 0)  # a mark; a line
    assert one.count("xtick_") == 1


def test_a_picture_needs_a_log_and_a_known_kind(tmp_path):
    with pytest.raises(WrongUse, match="png or .svg"):
        write_curve(LOG, tmp_path / "curve.pdf")
    with pytest.raises(WrongUse, match="empty"):
        write_curve([], tmp_path / "curve.png")
