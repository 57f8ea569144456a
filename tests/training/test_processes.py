"""Two processes, as torchrun starts them, teach the same as one."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from rankhouse.models.bundle import load
from rankhouse.training.fit import fit
from rankhouse.training.log import read_log
from rankhouse.training.settings import Settings, defaults

pytestmark = pytest.mark.slow

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import torch
torch.set_num_threads(1)
import conftest
from rankhouse.training import steps
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import Settings
from rankhouse.training.validation import Validation

queries, documents, qrels, run = conftest.make_toy()
learned, held_out = queries[:conftest.LEARNED], queries[conftest.LEARNED:]
ids = [query.id for query in held_out]
fit(
    conftest.DESIGNS["knrm"].fresh([d.full_text for d in documents.values()], seed=1),
    from_judgements(learned, qrels, documents, run),
    Settings.from_json(sys.argv[2]),
    sys.argv[3],
    Validation(run.restrict(ids), held_out, {q: qrels[q] for q in ids}, documents),
)
steps.end_group()
names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]  # none but on Linux
left = [name for name in names if "gloo" in name]
assert not left, f"threads that would meet the end of the interpreter: {left}"
"""


def test_two_processes_share_a_batch_and_end_as_one_would(toy, fresh, tmp_path):
    settings = defaults("knrm").but(
        rate=0.01, rates={}, batch=17, accumulate=2, epochs=2, measure="AP", device="cpu", validate_every=0
    )
    assert Settings.from_json(settings.to_json()) == settings
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    given = [str(script), str(Path(__file__).parent), settings.to_json().decode(), str(tmp_path / "two")]
    done = subprocess.run([*torchrun, *given], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    model = fresh("knrm")
    fit(model, toy.examples, settings, tmp_path / "one", toy.validation)
    for name, tensor in load(tmp_path / "two" / "ranker").state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-4, atol=1e-5)
    one, two = (
        [entry["loss"] for entry in read_log(tmp_path / name / "log.jsonl") if "loss" in entry]
        for name in ("one", "two")
    )
    assert two == pytest.approx(one, rel=1e-4)
