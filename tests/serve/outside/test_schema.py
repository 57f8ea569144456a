"""Schemathesis over /openapi.json: whatever is sent, the service fails never and answers as it describes."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = pytest.mark.outside

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,ignored_auth"
)
EACH = int(os.environ.get("RANKHOUSE_FUZZ", "25"))
"""Fuzzed requests an operation; .ci/run sets 30, and RANKHOUSE_FUZZ=400 makes more than 10,000 in all."""


@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_whatever_is_sent_is_answered_as_described(serving, tiny, make_index, tmp_path):
    rankers = [part for name, spec in tiny.items() for part in ("--ranker", f"{name}={spec}")]
    # 504 answers what asks for a deadline that is over at once.
    (tmp_path / "schemathesis.toml").write_text(
        '[checks.not_a_server_error]\nexpected-statuses = ["2xx", "3xx", "4xx", "504"]\n'
    )
    arguments = [make_index(tmp_path), *rankers, "--judgements", tmp_path / "judged.txt"]
    with serving(tmp_path / "fuzzed", *arguments) as running:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{running.base}/openapi.json"),
                *("--header", f"Authorization: Bearer {running.key}", "--checks", CHECKS, "--seed", "11"),
                *("--phases", "examples,coverage,fuzzing", "--max-examples", str(EACH), "--workers", "2"),
                *("--generation-deterministic", "--no-color"),
                *("--request-timeout", "60", "--warnings", "off"),
            ],
            check=False, capture_output=True, text=True, cwd=tmp_path,
        )  # fmt: skip
        asked = running.metric("rankhouse_requests_total")
        print(done.stdout[-6000:], done.stderr[-2000:], f"{asked} requests")
        assert done.returncode == 0
        assert asked > 10 * EACH
        assert running.get("/readyz").status == 200
        assert " 500 " not in running.said()
        assert "Traceback" not in running.said()
