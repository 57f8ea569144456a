"""A small part of the attack on the command line (benchmarks/attack), on every change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
SMALL = {"kills": 0.06, "aims": 0.06, "bad words": 0.04, "fuzzed files": 0.02, "markup": 0.04}

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the attack needs Linux")


@pytest.mark.parametrize("campaign", SMALL)
def test_nothing_is_lost_and_nothing_silently_wrong(campaign, tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    asked = [campaign, "--light", "--share", str(SMALL[campaign]), "--workers", "1", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.attack", *asked],
        cwd=HOUSE,
        capture_output=True,
        text=True,
        check=False,
    )
    results = json.loads((tmp_path / f"{campaign.replace(' ', '-')}.json").read_text())
    assert results["counts"]["tried"] >= 5, done.stderr
    assert not results["faults"]
    assert done.returncode == 0, done.stderr
