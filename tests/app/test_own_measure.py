"""A package's own measure is known to the command line by an entry point."""

import json
import os

PACKAGE = {
    "depths.py": "def depth(ranked, judged):\n    return len(ranked)\n",
    "depths-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: depths\nVersion: 1\n",
    "depths-1.dist-info/entry_points.txt": "[rankhouse.measures]\nDepth = depths:depth\n",
}


def lay_out(folder, files):
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_evaluate_and_recipes_know_the_measure_of_an_installed_package(tmp_path, run, monkeypatch):
    lay_out(tmp_path / "site", PACKAGE)
    lay_out(tmp_path, {"a.run": "q Q0 d 1 2 t\nq Q0 e 2 1 t\n", "a.qrels": "q 0 d 1\n"})
    arguments = ("evaluate", "--qrels", "a.qrels", "--measures", "Depth@1 Depth AP", "a.run", "--json")
    assert run(*arguments).returncode == 2
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'site'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert [cell["mean"] for cell in json.loads(done.stdout)["cells"]] == [1, 2, 1]
    lay_out(tmp_path / "site", {"depths.py": "import nowhere_at_all\n"})
    done = run(*arguments)
    assert done.returncode == 1
    assert '"Depth" of an installed package cannot be loaded from depths:depth' in done.stderr
    assert "Traceback" not in done.stderr
