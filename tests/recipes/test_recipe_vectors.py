"""Steps that add to a folder add to a copy of it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

NOTES = Path(__file__).parents[1] / "tiny" / "notes"
RECIPE = """title = "Vectors"

[data]
notes = "{notes}"
encoder = "{encoder}"

[loop]
dtype = ["float32", "float16"]

[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"
workers = 1

[steps.vectors]
command = "encode"
index = "@index"
ranker = 'biencoder("@encoder")'
dtype = "{{dtype}}"
precision = "fp32"
threads = 1

[steps.dense]
command = "search"
index = "@vectors"
queries = "@notes/queries.jsonl"
model = '''dense("biencoder('@encoder')")'''
precision = "fp32"
threads = 1

[[table]]
name = "Dense"
rows = {{ dense = "@dense" }}
qrels = "@notes/qrels.txt"
measures = "AP"
"""


@pytest.mark.slow
def test_vectors_are_added_to_copies_that_share_the_files_of_the_index(tmp_path, run, bert):
    encoder = bert("BertModel")
    (tmp_path / "r.toml").write_text(RECIPE.format(notes=NOTES, encoder=encoder))
    done = run("run", "r.toml", "--json")
    assert done.returncode == 0, done.stderr
    passes = json.loads(done.stdout)["tables"][0]["cells"][0]["passes"]
    assert list(passes) == ["dtype=float32", "dtype=float16"]
    work = tmp_path / "r.out" / "work"
    (plain,) = work.glob("index-*/index")
    assert not (plain / "vectors").exists()
    copies = sorted(work.glob("vectors.dtype=*/vectors"))
    assert len(copies) == 2
    for copy in copies:
        assert (copy / "vectors" / "default" / "manifest.json").exists()
        manifest = (plain / "manifest.json").stat()
        assert (copy / "manifest.json").stat().st_ino == manifest.st_ino
    planned = run("run", "r.toml", "--dry-run", "--json")
    steps = json.loads(planned.stdout)["steps"]
    assert {step["state"] for step in steps} == {"kept"}
    commands = [step["command"] for step in steps if step["step"] == "vectors"]
    assert all(command.startswith("cp -al work/index-") for command in commands)
