"""What is done and kept elsewhere stays done where the audit cannot be written; logs hold whole lines."""

import json
import os

import pytest

from rankhouse.core.errors import OutputFailed
from rankhouse.serve.host.journal import JsonLines
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


@pytest.fixture
def full(monkeypatch):
    """A disk with room for a few bytes of each write, until it has room again."""
    real, has_room = os.write, []

    def write(number, content):
        if has_room:
            return real(number, content)
        if len(content) > 9:
            return real(number, content[:9])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", write)
    return has_room


def test_a_full_disk_leaves_no_half_line_in_the_audit(tmp_path, full):
    audit = Audit(tmp_path / "audit.jsonl")
    with pytest.raises(OutputFailed):
        audit.record("train", "anna")
    full.append(True)
    audit.record("train", "bert")
    assert [json.loads(line)["who"] for line in (tmp_path / "audit.jsonl").read_text().splitlines()] == [
        "bert"
    ]


def test_a_full_disk_leaves_out_lines_of_the_access_log_and_says_so_once(tmp_path, full, capsys):
    lines = JsonLines(tmp_path / "access.jsonl")
    for number in range(3):
        lines.write({"id": number})
    full.append(True)
    lines.write({"id": 3})
    lines.close()
    assert [json.loads(line)["id"] for line in (tmp_path / "access.jsonl").read_text().splitlines()] == [3]
    (said,) = capsys.readouterr().err.splitlines()
    assert "access.jsonl: cannot be written" in said
    assert "requests are not logged" in said
