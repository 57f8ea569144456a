"""The executables of search-benchmark-game's protocol answer it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ARENA = Path(__file__).parents[2] / "benchmarks" / "arena"
TEXTS = {"1": "the book of the sea", "2": "the sea", "3": "book of ships", "4": "ships"}


@pytest.mark.outside
def test_every_kind_of_query_is_answered_in_its_line(tmp_path):
    corpus = "".join(json.dumps({"id": i, "text": text}) + "\n" for i, text in TEXTS.items())
    build = [sys.executable, ARENA / "build_index.py", tmp_path / "index"]
    subprocess.run(build, input=corpus, text=True, check=True)
    asked = {
        "COUNT\tthe ships": "4",
        "COUNT\t+the +book": "1",
        "COUNT\t+book +of": "2",
        "COUNT\t+book +nothing": "0",
        "COUNT\tnothing": "0",
        "TOP_10\tthe book": "1",
        "TOP_1\t+the +sea": "1",
        "TOP_10_COUNT\tthe book sea": "3",
        "TOP_1_COUNT\t+the +sea": "2",
        "UNOPTIMIZED_COUNT\tof": "2",
        'COUNT\t"the book"': "UNSUPPORTED",
        'TOP_10\t+"the who" +uk': "UNSUPPORTED",
        "TOP_10\t+the sea": "UNSUPPORTED",
        "TOP_10\t+the -sea": "UNSUPPORTED",
        "TOP_10\tgriff*": "UNSUPPORTED",
        "TOP_10_FF\tthe sea": "UNSUPPORTED",
        "COUNT\tid_num:[1 TO 5]": "UNSUPPORTED",
    }
    query = [sys.executable, ARENA / "do_query.py", tmp_path / "index"]
    lines = "".join(f"{line}\n" for line in asked)
    done = subprocess.run(query, input=lines, text=True, check=True, capture_output=True)
    assert dict(zip(asked, done.stdout.splitlines(), strict=True)) == asked
