"""The comparison of checkouts runs: what it does by default for encoders, and the service."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        (["--families", "biencoder fp32", "--repeat", "1"], ["biencoder fp32"]),
        (["--serve", "300"], ["serve search", "serve rerank"]),
    ],
)
def test_checkouts_are_compared(asked, rows):
    command = [sys.executable, str(ROOT / "benchmarks" / "versions.py"), str(ROOT), str(ROOT)]
    done = subprocess.run([*command, "--rounds", "1", *asked], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for row in rows:
        least = [float(line.removeprefix(row).split()[1]) for line in lines if line.startswith(row)]
        assert len(least) == 2
        assert min(least) > 0
