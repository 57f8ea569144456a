"""Judgements under load: what was acknowledged is in the file, however the service ended."""

import itertools
import random
import signal
import threading
import time
from http.client import HTTPException
from urllib.parse import urlencode

import pytest

from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels

pytestmark = pytest.mark.outside

JUDGES = 6


def judge(service, name, query, doc, grade):
    form = urlencode({"query": query, "judge": name, "index": "little", "mark": f"{grade} 1 {doc}"})
    sent = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    return service.post("/judge", form.encode(), headers=sent)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM], ids=["SIGKILL", "SIGTERM"])
def test_no_acknowledged_judgement_is_lost(serving, tiny, make_index, tmp_path, sign):
    """Judges write while others rerank; in the middle of it the service is ended, three times over."""
    index, file = make_index(tmp_path), tmp_path / "judged.txt"
    arguments = [index, "--judgements", file, "--ranker", f"tiny={tiny['tiny']}"]
    acknowledged, numbers = {}, itertools.count()
    for turn in range(3):
        with serving(tmp_path / f"turn{turn}", *arguments) as running:
            over, rng = threading.Event(), random.Random(turn)
            body = {"query": "q", "documents": ["boat and coast " * 20] * 500}

            def say(name, running=running, over=over, rng=rng):
                while not over.is_set():
                    number = next(numbers)
                    query, doc, grade = f"question {number // 100}", f"d{number % 100}", rng.randint(0, 2)
                    try:
                        reply = judge(running, name, query, doc, grade)
                    except (OSError, HTTPException):
                        return
                    if reply.status == 503:
                        return
                    assert reply.status == 200, reply
                    acknowledged[query, doc] = grade

            def load(running=running, over=over, body=body):
                while not over.is_set():
                    try:
                        running.post("/rerank", body)
                    except (OSError, HTTPException):
                        return

            threads = [threading.Thread(target=say, args=(f"judge{i}",)) for i in range(JUDGES)]
            threads += [threading.Thread(target=load) for _ in range(2)]
            for thread in threads:
                thread.start()
            before = len(acknowledged)
            ends = time.monotonic() + 300
            while len(acknowledged) < before + 40 and time.monotonic() < ends:
                time.sleep(0.02)
            running.process.send_signal(sign)
            code = running.process.wait(300)
            over.set()
            for thread in threads:
                thread.join()
            assert code == (0 if sign is signal.SIGTERM else -signal.SIGKILL)
            assert len(acknowledged) >= before + 40
    with serving(tmp_path / "after", *arguments) as running:
        assert judge(running, "judge0", "the last question", "d1", 1).status == 200
    texts = {query.id: query.text for query in read_queries(file.with_name("judged.txt.queries.jsonl"))}
    kept = {
        (texts[at], doc): grade for at, grades in read_qrels(file).items() for doc, grade in grades.items()
    }
    assert acknowledged.items() <= kept.items()
