"""From judgements to a ranker of the service, by real trainings in processes of their own."""

import os
import random
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from rankhouse.text.words import BLINGFIRE

pytest.importorskip("torch")
pytest.importorskip(BLINGFIRE)

from rankhouse.api.index import Index
from rankhouse.core.errors import OutputFailed, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.io.checksums import write_checked
from rankhouse.io.outputs import write_json
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.errors import UnknownName, Unready
from rankhouse.serve.judging import training
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import CompareRequest, compare_runs
from rankhouse.serve.judging.runs import SystemRuns
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import Busy, TrainingJob, TrainingJobs, TrainingRequest
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.systems.rankers import ComputeOptions


class Parts(ServedCollection):
    """The parts of a service that training needs."""

    def offer(self, name, folder):
        """Open a ranker and offer it."""
        self.catalogue.add_ranker(open_served(name, folder, ComputeOptions("fp32", "cpu", 1)))


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Notes of which those that hold the whole question are relevant; with the questions and their qrels."""
    draw, words = random.Random(0), [f"word{i}" for i in range(40)]
    documents, queries, qrels = [], [], {}
    for q in range(15):
        asked = draw.sample(words, 3)
        queries.append(Query(f"q{q}", " ".join(asked)))
        for d in range(6):
            own = asked if d < 2 else [asked[d % 3], *draw.sample(words, 2)]
            documents.append({"id": f"q{q}d{d}", "text": " ".join(own + draw.sample(words, 5))})
            qrels.setdefault(f"q{q}", {})[f"q{q}d{d}"] = 2 if d < 2 else 0
    folder = tmp_path_factory.mktemp("training")
    Index.build(documents, folder / "i", workers=1)
    return folder / "i", tuple(queries), qrels


@pytest.fixture
def service(index, tmp_path):
    """A service of them; one judgement was made there, over a given one."""
    folder, queries, qrels = index
    store = JudgementStore(tmp_path / "judged.txt", queries)
    parts = Parts(Catalogue({"notes": folder}), store, queries, qrels)
    store.judge("ann", queries[0].text, "q0d5", 1)
    yield parts
    store.close()
    for ranker in parts.catalogue.rankers.values():
        ranker.close()


@pytest.fixture
def jobs(service, tmp_path):
    opened = TrainingJobs(tmp_path / "trained", service, service.offer, {})
    yield opened
    opened.close()


def ended(jobs, name):
    """Wait for the end of a training."""
    until = time.monotonic() + 900
    while (job := jobs.job(name)).state == "running":
        assert time.monotonic() < until
        time.sleep(0.05)
    return job


def begun(jobs, name):
    """Wait for the first step of a training."""
    until = time.monotonic() + 900
    while True:
        job = jobs.job(name)
        if any("loss" in entry for entry in job.log):
            return
        assert job.state == "running", job
        assert time.monotonic() < until
        time.sleep(0.05)


def compared(service, jobs, request):
    """Compare systems, the trained one among them."""
    service.runs, service.training, service.system_runs = {}, jobs, SystemRuns(service.catalogue)
    while not (told := compare_runs(service, request)[0]).ready:
        assert not told.notes
        time.sleep(0.02)
    service.system_runs.close()
    return told


@pytest.mark.slow
def test_judgements_become_a_ranker_of_the_service_and_stay_one(service, jobs, tmp_path):
    job = jobs.begin(TrainingRequest("mine", epochs=2, rate=0.01))
    assert (job.state, len(job.queries), job.held_out, job.warnings) == ("running", 15, 3, ())
    with pytest.raises(Busy, match='the training "mine" runs'):
        jobs.begin(TrainingRequest("other"))
    job = ended(jobs, "mine")
    assert (job.state, job.fault) == ("done", "")
    assert any("loss" in entry for entry in job.log)
    assert all(0 <= entry["value"] <= 1 for entry in job.log if "value" in entry)
    learned, held_out = (
        read_qrels(tmp_path / "trained" / "mine" / name) for name in ("qrels.txt", "valid.txt")
    )
    assert (len(learned), len(held_out)) == (12, 3)
    assert not learned.keys() & held_out.keys()
    assert set(read_run(tmp_path / "trained" / "mine" / "valid.run")) == set(held_out)
    query = service.queries[0].text
    answer = search(service.catalogue, SearchBody(query=query, system="mine"))
    assert (answer.system, answer.degraded) == ("mine", "")
    assert service.catalogue.ranker("mine").ranker.model.family == "knrm"
    assert "mine" in jobs.starts
    told = compared(service, jobs, CompareRequest(("bm25", "mine", "mine+bm25"), "RR@10"))
    assert [note for note in told.notes if "trained" in note] == [
        f"{name}: was trained on 12 of these 15 questions, which flatters its scores"
        for name in ("mine", "mine+bm25")
    ]
    with pytest.raises(WrongUse, match="was trained already"):
        jobs.begin(TrainingRequest("mine"))
    assert learned.get("q0", held_out.get("q0"))["q0d5"] == 1
    again = Parts(Catalogue({"notes": service.catalogue.view().index.path}), service.judgements)
    TrainingJobs(tmp_path / "trained", again, again.offer, {}).offer_finished()
    assert search(again.catalogue, SearchBody(query=query, system="mine")).hits == answer.hits
    again.catalogue.ranker("mine").close()


@pytest.mark.slow
def test_a_training_that_is_ended_goes_on_when_asked_for_again(service, jobs):
    request = TrainingRequest("long", epochs=900)
    jobs.begin(request)
    begun(jobs, "long")
    job = jobs.cancel("long")
    assert job.state == "cancelled"
    with pytest.raises(WrongUse, match='the training "long" does not run: it is cancelled'):
        jobs.cancel("long")
    assert "long" not in service.catalogue.rankers
    jobs.begin(request)
    begun(jobs, "long")
    assert jobs.job("long").log[: len(job.log) // 2] == job.log[: len(job.log) // 2]
    jobs.close()
    assert jobs.job("long").state != "running"
    fresh = TrainingJobs(jobs.folder, service, service.offer, {})
    assert [one.request.name for one in fresh.jobs()] == ["long"]


@pytest.mark.kill
@pytest.mark.skipif(os.name != "posix", reason="a kill that nobody can heed is POSIX's")
def test_a_training_does_not_outlive_a_service_that_is_killed(index, tmp_path):
    """Else the same request could not go on with it."""
    script = tmp_path / "starts.py"
    script.write_text(
        "import sys, time\n"
        "from pathlib import Path\n"
        "from rankhouse.serve.judging.process import started\n"
        "print(started(sys.argv[2:], Path(sys.argv[1])).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    queries, qrels, run = (tmp_path / name for name in ("queries.jsonl", "qrels.txt", "first.run"))
    queries.write_text('{"id": "q", "text": "word1 word2"}\n')
    qrels.write_text("q 0 q0d0 1\nq 0 q0d3 0\n")
    run.write_text("q Q0 q0d0 1 2 x\nq Q0 q0d3 2 1 x\n")
    arguments = ["train", "--ranker", "knrm(min_count=1)", "--index", index[0], "--out", tmp_path / "out",
                 "--queries", queries, "--qrels", qrels, "--run", run, "--epochs", "100000"]  # fmt: skip
    service = subprocess.Popen(
        [sys.executable, script, tmp_path / "said.txt", *arguments], stdout=subprocess.PIPE
    )
    with service:
        number = int(service.stdout.readline())
        until = time.monotonic() + 900
        while not (tmp_path / "out" / "log.jsonl").exists():
            assert time.monotonic() < until, (tmp_path / "said.txt").read_text()
            time.sleep(0.05)
        service.kill()
    while _lives(number):
        assert time.monotonic() < until
        time.sleep(0.05)


def _lives(number):
    """Whether there is such a process."""
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(number, 0)
        stat = Path(f"/proc/{number}/stat")  # where nobody asks how it ended, it stays there as a zombie
        return not Path("/proc/self").exists() or ") Z " not in stat.read_text()
    return False


def test_how_a_training_ended_is_known_where_the_disk_is_full(jobs, monkeypatch):
    request = TrainingRequest("mine")
    job = TrainingJob(request, "running", "2026-01-01T00:00:00+00:00")
    (jobs.folder / "mine").mkdir(parents=True)
    write_json(jobs.folder / "mine" / "job.json", job)

    def refuse(path, value):
        raise OutputFailed(f"{path}: the disk is full")

    monkeypatch.setattr(training, "write_checked", refuse)
    monkeypatch.setattr(jobs, "_offer", lambda name, spec: None)
    jobs._watch(job, type("Ended", (), {"wait": lambda self: 0})())
    assert (jobs.job("mine").state, jobs.job("mine").fault) == ("done", "")


def test_a_training_that_can_write_nothing_is_refused(jobs):
    jobs.folder.write_text("no folder")
    with pytest.raises(OutputFailed, match="cannot be written"):
        jobs.begin(TrainingRequest("mine"))


@pytest.mark.slow
def test_what_a_training_says_when_it_fails_is_kept(service, tmp_path):
    (tmp_path / "broken").mkdir()
    jobs = TrainingJobs(tmp_path / "trained", service, service.offer, {"old": str(tmp_path / "broken")})
    jobs.begin(TrainingRequest("next", "old"))
    job = ended(jobs, "next")
    assert job.state == "failed"
    assert "broken" in job.fault
    assert "Traceback" not in job.fault
    assert jobs.jobs()[0].fault == job.fault


@pytest.mark.parametrize(("request_", "kind", "said"), [
    (TrainingRequest("../up"), WrongUse, "give 1 to 64 letters"),
    (TrainingRequest(""), WrongUse, "give 1 to 64 letters"),
    (TrainingRequest("a", "knrm(vectors='/etc/passwd')"), UnknownName, "no ranker or family to begin with"),
    (TrainingRequest("a", "/etc"), UnknownName, "no ranker or family to begin with"),
    (TrainingRequest("old"), WrongUse, "is a ranker of the service already"),
    (TrainingRequest("bm25"), WrongUse, "is a system of the service already"),
    (TrainingRequest("a", index="none"), UnknownName, 'no index "none"'),
    (TrainingRequest("a", first_stage="none"), UnknownName, 'no system "none"'),
])  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_anything_is_written(
    service, tmp_path, request_, kind, said
):
    jobs = TrainingJobs(tmp_path / "trained", service, service.offer, {"old": "x"})
    with pytest.raises(kind, match=said):
        jobs.begin(request_)
    assert jobs.jobs() == []
    with pytest.raises(UnknownName, match='no training "mine"'):
        jobs.job("mine")
    with pytest.raises(WrongUse, match="only reads"):
        TrainingJobs(None, service, service.offer, {}).begin(TrainingRequest("a"))


def test_while_a_training_is_prepared_another_is_refused_and_the_service_can_end(service, jobs, monkeypatch):
    begins, goes_on, rank = threading.Event(), threading.Event(), training.rank

    def slow(*arguments):
        begins.set()
        assert goes_on.wait(120)
        return rank(*arguments)

    monkeypatch.setattr(training, "rank", slow)
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(jobs.begin, TrainingRequest("first"))
        assert begins.wait(120)
        with pytest.raises(Busy, match='"first" runs'):
            jobs.begin(TrainingRequest("second"))
        jobs.close()
        goes_on.set()
        with pytest.raises(Unready, match="ended before it began"):
            first.result(120)
    assert jobs.jobs() == []
    job = jobs.begin(TrainingRequest("second", epochs=900))
    assert (job.state, jobs.cancel("second").state) == ("running", "cancelled")


def test_few_judged_questions_are_warned_of(service, jobs):
    service.qrels = {query_id: service.qrels[query_id] for query_id in ("q1", "q2")}
    job = jobs.begin(TrainingRequest("few", epochs=900))
    said = "only 3 questions with a relevant document: none were held out to choose the best step"
    assert (job.held_out, job.warnings) == (0, (f"{said}; judge 10 or more",))
    assert jobs.cancel("few").warnings == job.warnings


def test_a_training_that_runs_says_how_far_it_is_and_how_long_it_takes(jobs, monkeypatch):
    monkeypatch.setattr(jobs, "_running", "slow")
    place = jobs.folder / "slow"
    place.mkdir(parents=True)
    write_checked(place / "job.json", TrainingJob(TrainingRequest("slow"), "running", ""))
    assert jobs.job("slow").progress == ""
    said = "training: 2 of 57 (4%) in 2 min 30 s, about 1 h 00 min left"
    (place / "said.txt").write_text(f"warning: one\ntraining: 1 of 57 (2%) in 2 min\n{said}\n")
    assert jobs.job("slow").progress == "Steps: 2 of 57 (4%) in 2 min 30 s, about 1 h 00 min left"
    monkeypatch.setattr(jobs, "_running", "")
    assert jobs.job("slow").progress == ""


def test_without_a_relevant_document_there_is_nothing_to_learn(service, jobs):
    service.qrels = {"q1": {"q1d1": 0}, "q2": {"elsewhere": 2}, "unknown": {"q1d1": 2}}
    service.judgements.undo("ann")
    with pytest.raises(WrongUse, match="nothing to learn; judge more"):
        jobs.begin(TrainingRequest("mine"))
