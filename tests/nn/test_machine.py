"""The processor, and the programs that use it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankhouse.nn import machine
from rankhouse.nn.machine import ProcessorTime


def test_the_share_of_others_is_theirs_of_all_cores(monkeypatch):
    monkeypatch.setattr(machine, "_cores", lambda: 4)
    before, after = ProcessorTime(100.0, 50.0, 10.0), ProcessorTime(110.0, 80.0, 14.0)
    assert after.share_of_others(before) == pytest.approx((30 - 4) / 40)
    assert before.share_of_others(before) == 0
    assert ProcessorTime(110.0, 53.0, 15.0).share_of_others(before) == 0  # clocks of different steps


def test_what_everyone_had_is_what_the_system_counts_without_idling(monkeypatch):
    counts = "cpu  100 20 30 4000 500 6 7 80 9 1\ncpu0 1 2 3 4 5 6 7 8 9 1\n"
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: counts)
    monkeypatch.setattr(machine, "_children_seconds", lambda: 0.0)
    assert ProcessorTime.now().everyone == (100 + 20 + 30 + 6 + 7) / os.sysconf("SC_CLK_TCK")


def test_where_the_system_counts_for_no_one_else_nobody_is_seen(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    before = ProcessorTime.now()
    assert before.everyone == before.own
    assert ProcessorTime.now().share_of_others(before) == 0


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="counted on Linux")
def test_what_children_use_while_they_live_is_this_programs_own():
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    before = ProcessorTime.now()
    asked = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(["sh", "-c", f"{sys.executable} -c '{busy}'; true"], **asked) as shell:
        shell.stdout.readline()
        while_it_lives = ProcessorTime.now()
        shell.communicate(b"\n")
    assert while_it_lives.own - before.own > 0.25
    assert ProcessorTime.now().own >= while_it_lives.own - 0.02  # counted once, in whole ticks


ALONE = """
import torch
from rankhouse.nn.layers.convolve import over_matrices
torch.manual_seed(0)
layer, matrices = torch.nn.Conv2d(1, 8, 3, padding=1), torch.randn(40, 1, 12, 50)
with torch.inference_mode():
    whole = over_matrices(layer, matrices)
    print(*(n for n in (1, 2, 7, 39) if not torch.equal(over_matrices(layer, matrices[:n]), whole[:n])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("forced", ["", "avx512", "avx2", "plain"])
def test_a_convolution_has_the_same_bits_beside_any_others(forced):
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        env=os.environ | {"RANKHOUSE_CPU": forced}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert not done.stdout.strip(), f"differ with RANKHOUSE_CPU={forced}: the first {done.stdout}"
