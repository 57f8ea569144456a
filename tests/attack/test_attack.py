"""A small part of the attack on the command line (benchmarks/attack), on every change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kill

HOUSE = Path(__file__).parents[2]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the attack needs Linux")
def test_nothing_is_lost_and_nothing_silently_wrong(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    campaigns = ["kills", "aims", "bad words", "fuzzed files", "markup", "measures", "odd files"]
    asked = [*campaigns, "--light", "--share", "0.015", "--workers", "1", "--out", str(tmp_path)]
    line = [sys.executable, "-m", "benchmarks.attack", *asked]
    done = subprocess.run(line, cwd=HOUSE, capture_output=True, text=True, check=False)
    results = {
        name: json.loads((tmp_path / f"{name.replace(' ', '-')}.json").read_text()) for name in campaigns
    }
    assert sum(part["counts"]["tried"] for part in results.values()) >= 30, done.stderr
    assert not [fault for part in results.values() for fault in part["faults"]]
    assert done.returncode == 0, done.stderr
