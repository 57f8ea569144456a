"""A small part of the attack on the command line (benchmarks/attack), on every change."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.kill

HOUSE = Path(__file__).parents[2]


PARTS = {
    "stores": ("", 0.02),
    "service": ("judging", 0.05),
    "mcp": ("", 0.05),
    "proxy": ("", 0.09),
    "pretrain": ("a file", 0.05),
    "up": ("files that change", 0.04),
    "up, its watcher killed": ("the watcher killed", 0.05),
    "up, state damaged": ("state damaged", 0.1),
}


def attacked(tmp_path, campaigns, *options):
    """Do parts of campaigns; return their results, which are all right."""
    line = [sys.executable, "-m", "benchmarks.attack", *campaigns, *options, "--workers", "1"]
    done = subprocess.run(
        [*line, "--out", str(tmp_path)], cwd=HOUSE, capture_output=True, text=True, check=False
    )
    results = [json.loads((tmp_path / f"{name.replace(' ', '-')}.json").read_text()) for name in campaigns]
    assert not [fault for part in results for fault in part["faults"]]
    assert done.returncode == 0, done.stderr
    return sum(part["counts"]["tried"] for part in results)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the attack needs Linux")
def test_a_part_of_each_newer_campaign(part, tmp_path):
    only, share = PARTS[part]
    light = [] if part == "pretrain" else ["--light"]
    if part == "pretrain":
        pytest.importorskip("torch")
    assert attacked(tmp_path, [part.partition(",")[0]], "--only", only, "--share", str(share), *light)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the attack needs Linux")
def test_nothing_is_lost_and_nothing_silently_wrong(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    campaigns = ["kills", "aims", "bad words", "fuzzed files", "markup", "measures", "odd files"]
    assert attacked(tmp_path, campaigns, "--light", "--share", "0.015") >= 30
