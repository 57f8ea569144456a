"""A package's own measure is known to the command line by an entry point."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src"

PACKAGE = {
    "depths.py": "def depth(ranked, judged):\n    return len(ranked)\n",
    "depths-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: depths\nVersion: 1\n",
    "depths-1.dist-info/entry_points.txt": "[rankhouse.measures]\nDepth = depths:depth\n",
}


def lay_out(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def evaluate(folder, site):
    """Evaluate in a process of its own, as what is installed is read once."""
    code = "from rankhouse.cli.main import main; main()"
    options = ("--qrels", "a.qrels", "--measures", "Depth@1 Depth AP", "a.run", "--json")
    places = [str(site), str(SOURCES)]
    return subprocess.run(
        [sys.executable, "-c", code, "evaluate", *options],
        cwd=folder, env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_a_command_knows_the_measure_of_an_installed_package(tmp_path):
    lay_out(tmp_path / "site", PACKAGE)
    lay_out(tmp_path, {"a.run": "q Q0 d 1 2 t\nq Q0 e 2 1 t\n", "a.qrels": "q 0 d 1\n"})
    done = evaluate(tmp_path, tmp_path)
    assert done.returncode == 2
    assert "Depth@1" in done.stderr
    done = evaluate(tmp_path, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    assert [cell["mean"] for cell in json.loads(done.stdout)["cells"]] == [1, 2, 1]
    lay_out(tmp_path / "site", {"depths.py": "import nowhere_at_all\n"})
    done = evaluate(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert (
        '"Depth" of depths, an extension for rankhouse.measures, cannot be loaded from depths:depth'
        in done.stderr
    )
    assert "Traceback" not in done.stderr
