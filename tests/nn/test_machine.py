"""What the processor is, and who uses it."""

import os
import subprocess
import sys

import pytest

from rankhouse.nn.cpu.machine import ProcessorTime


def test_the_share_of_others_is_theirs_of_all_cores(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    before, after = ProcessorTime(100.0, 50.0, 10.0), ProcessorTime(110.0, 80.0, 14.0)
    assert after.share_of_others(before) == pytest.approx((30 - 4) / 40)
    assert before.share_of_others(before) == 0
    assert ProcessorTime(110.0, 53.0, 15.0).share_of_others(before) == 0  # clocks of different steps


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts for everyone")
def test_another_program_is_counted_for_everyone():
    before = ProcessorTime.now()
    code = "import os\nwhile sum(os.times()[:2]) < 0.5: pass"
    other = subprocess.Popen([sys.executable, "-c", code])
    while other.poll() is None and ProcessorTime.now().everyone - before.everyone < 0.3:
        pass
    other.kill()
    other.wait()
    assert ProcessorTime.now().everyone - before.everyone >= 0.3
