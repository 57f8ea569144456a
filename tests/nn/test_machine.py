"""What the processor is, and who uses it."""

import os
from pathlib import Path

import pytest

from rankhouse.nn.cpu import machine
from rankhouse.nn.cpu.machine import ProcessorTime


def test_the_share_of_others_is_theirs_of_all_cores(monkeypatch):
    monkeypatch.setattr(machine, "_cores", lambda: 4)
    before, after = ProcessorTime(100.0, 50.0, 10.0), ProcessorTime(110.0, 80.0, 14.0)
    assert after.share_of_others(before) == pytest.approx((30 - 4) / 40)
    assert before.share_of_others(before) == 0
    assert ProcessorTime(110.0, 53.0, 15.0).share_of_others(before) == 0  # clocks of different steps


def test_what_everyone_had_is_what_the_system_counts_without_idling(monkeypatch):
    counts = "cpu  100 20 30 4000 500 6 7 80 9 1\ncpu0 1 2 3 4 5 6 7 8 9 1\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: counts)
    assert ProcessorTime.now().everyone == (100 + 20 + 30 + 6 + 7) / os.sysconf("SC_CLK_TCK")


def test_where_the_system_counts_for_no_one_else_nobody_is_seen(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    before = ProcessorTime.now()
    assert before.everyone == before.own
    assert ProcessorTime.now().share_of_others(before) == 0
