"""What is done and kept elsewhere stays done where the audit cannot be written."""

import json

import pytest

from rankhouse.core.errors import OutputFailed
from rankhouse.serve.judging.log import Audit


def test_a_deed_that_is_kept_elsewhere_outlives_its_audit_line(tmp_path, capsys):
    audit = Audit(tmp_path / "audit.jsonl")
    audit.note("judge", "anna", grade=2)
    (line,) = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert json.loads(line).items() >= {"deed": "judge", "who": "anna", "grade": 2}.items()
    (tmp_path / "audit.jsonl").unlink()
    (tmp_path / "audit.jsonl").mkdir()
    audit.note("judge", "anna", grade=1)
    assert "no audit line of judge by anna" in capsys.readouterr().err
    with pytest.raises(OutputFailed):
        audit.record("train", "anna")
