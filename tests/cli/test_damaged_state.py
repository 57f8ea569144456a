"""Every reader of files that rankhouse itself wrote: damage is said with the file, or it is made again."""

import json
from types import SimpleNamespace

import msgspec
import pytest

from rankhouse.core.errors import RankhouseError, RankhouseWarning

DEEP = b'{"a": ' * 50_000
FLIPS = 20  # of each file, at places spread evenly


def settings(folder):
    from rankhouse.training.folder import Settings, resume_point

    path = folder / "settings.json"
    Settings().write(path)
    return path, lambda: resume_point(folder, "x", Settings())


def training_log(folder):
    from rankhouse.training.log import TrainingLog, read_log, write_curve

    path = folder / "log.jsonl"
    log = TrainingLog(path)
    for step in range(4):
        log.write(step=step, epoch=0, loss=0.5, rate=0.1, norm=1.0, seconds=0.1)
    log.write(step=3, epoch=0, measure="AP", value=0.25, first_stage=0.2)

    def read():
        if entries := read_log(path):
            write_curve(entries, folder / "curve.svg")
        log.forget_after(2)

    return path, read


def outcome(folder):
    from rankhouse.io.checksums import write_checked
    from rankhouse.training.checkpoint import read_outcome
    from rankhouse.training.folder import TrainingOutcome

    path = folder / "outcome.json"
    facts = dict.fromkeys(("family", "measure", "stopped", "training"), "x")
    facts |= dict.fromkeys(("steps", "epochs", "first_stage", "best", "best_step", "seconds"), 1)
    (folder / "log.jsonl").write_text('{"step": 1}\n')
    write_checked(path, facts | {"validations": [[1, 0.5]], "remarks": []}, [folder / "log.jsonl"])
    return path, lambda: read_outcome(path, TrainingOutcome)


def plan_of_adaptation(folder):
    from rankhouse.adaptation.adapt import _check_plan
    from rankhouse.adaptation.options import AdaptOptions

    job = SimpleNamespace(
        index=SimpleNamespace(fingerprint="f"),
        teacher=SimpleNamespace(fingerprint="t"),
        people=(),
        tested=(),
        options=AdaptOptions(),
        folder=folder,
    )
    _check_plan(job)
    return folder / "plan.json", lambda: _check_plan(job)


def timetable_of_adaptation(folder):
    from rankhouse.adaptation.student import Timetable, timetable
    from rankhouse.io.checksums import write_checked

    path = folder / "steps.json"
    write_checked(path, Timetable(steps=9, step=0.5, validation=3, weighing=4, afterwards=1.5))
    return path, lambda: timetable(SimpleNamespace(folder=folder), None, 0.0)


def mined(folder):
    from rankhouse.adaptation.mining import MiningResult
    from rankhouse.io.checksums import write_checked
    from rankhouse.io.decoding import read_cache

    path = folder / "mined-1.json"
    write_checked(path, MiningResult(questions=9, candidates=8, false_negatives=7))
    return path, lambda: read_cache(path, MiningResult)


def written_questions(folder):
    from rankhouse.adaptation.written import KeptWriter

    path = folder / "written.jsonl"
    lines = [{"documents": 3, "of": 9, "seed": 1}, {"id": "d1", "questions": ["who steers ships?"]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path, lambda: KeptWriter(lambda document: (), path, lambda done, total: None)


def threshold(folder):
    from rankhouse.labels.thresholds import read_threshold

    path = folder / "threshold.json"
    path.write_text('{"threshold": 0.75, "precision": 0.9}')
    return path, lambda: read_threshold(str(path))


def labelling(folder):
    from rankhouse.labels.journal import LabelJournal

    LabelJournal(folder / "journal", {"rule": "taught"})
    return folder / "journal" / "plan.json", lambda: LabelJournal(folder / "journal", {"rule": "taught"})


def files_of_up(folder):
    from rankhouse.serve.folder.files import FileState, FolderState

    path = folder / "files.json"
    FolderState("f", {"a.txt": FileState(3, 4, "d")}, "e").save(path)
    return path, lambda: list(FolderState.load(path).files)


def progress_of_up(folder):
    from rankhouse.serve.folder.files import FolderProgress

    path = folder / "progress.json"
    path.write_bytes(msgspec.json.encode(FolderProgress("reading", 0.5, 3.0, 1, ("x",))))
    return path, lambda: FolderProgress.load(path)


def judgements(folder):
    from rankhouse.serve.judging.log import JudgementEntry, JudgementLog

    path = folder / "qrels.txt.log.jsonl"
    entries = [JudgementEntry(i, "2026", "me", "q1", f"d{i}", 1) for i in (1, 2)]
    path.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries))

    def read():
        JudgementLog(path).close()

    return path, read


def job_of_service(folder):
    from rankhouse.io.checksums import write_checked
    from rankhouse.serve.judging.training import TrainingJob, TrainingJobs, TrainingRequest

    path = folder / "mine" / "job.json"
    path.parent.mkdir()
    write_checked(path, TrainingJob(TrainingRequest("mine"), "done", "2026"))
    return path, lambda: TrainingJobs(folder, None).jobs()


def step_of_recipe(folder):
    from rankhouse.io.checksums import write_checked
    from rankhouse.io.decoding import read_cache
    from rankhouse.recipes.execute import Record

    path = folder / "step.json"
    texts = dict.fromkeys(("step", "station", "command", "key", "output", "started"), "x")
    maps = {name: {"a": "b"} for name in ("loop", "options", "inputs", "files")}
    write_checked(path, texts | maps | {"seconds": 1.0})
    return path, lambda: read_cache(path, Record)


def hashes_of_recipe(folder):
    from rankhouse.recipes.sources import Contents

    path = folder / "contents.json"
    contents = Contents(path)
    (folder / "input.txt").write_text("x")
    contents.of(folder / "input.txt")
    contents.save()
    return path, lambda: Contents(path).of(folder / "input.txt")


def numbers_of_recipe(folder):
    from rankhouse.recipes.values import _numbers

    path = folder / "said.json"
    path.write_text('{"agreement": {"kappa": 0.5}}')
    return path, lambda: _numbers(path, {"kappa": "agreement.kappa"})


def recipe(folder):
    from rankhouse.recipes.parse import read_recipe

    path = folder / "recipe.toml"
    path.write_text(
        'title = "A"\n[steps.folds]\ncommand = "folds"\nqueries = "q.tsv"\nfolds = 2\nlist = [[1], [2]]\n'
    )
    return path, lambda: read_recipe(path)


def shard(folder):
    from rankhouse.io.checksums import sealed
    from rankhouse.jobs.shards import Shard, ShardManifest, load_shard

    path = folder / "part.json"
    manifest = ShardManifest(
        command="rerank", unit="queries", options={}, identity={}, found={}, shard=Shard(0, 1, 1),
        number="1/1", files={},
    )  # fmt: skip
    path.write_bytes(sealed(msgspec.json.encode(manifest)))
    return path, lambda: load_shard(folder)


def report_of_shard(folder):
    from rankhouse.io.outputs import write_json
    from rankhouse.jobs.jobs import REPORT, read_reports

    write_json(folder / REPORT, {"warnings": []})
    return folder / REPORT, lambda: read_reports([SimpleNamespace(folder=folder)])


def index_manifest(folder):
    from rankhouse.index.lexical.manifest import IndexManifest, load

    IndexManifest("english", ()).save(folder)
    return folder / "manifest.json", lambda: load(folder)


def vectors_manifest(folder):
    from rankhouse.index.append_state import LogKind, LogState, save_state

    path = folder / "manifest.json"
    save_state(LogState(documents=3, version=1), path)

    class State(LogState, frozen=True, kw_only=True):
        format: str = ""
        version: int = 1

    return path, lambda: LogKind(State, {}, (), {}, (), ()).load(path)


def bundle_manifest(folder):
    from rankhouse.models.bundle import BundleManifest, _checksum, _foreign, read_manifest

    manifest = BundleManifest(
        family="knrm", policy={"a": 1}, assets=[], shared={}, fingerprint="f", versions={}
    )
    fields = msgspec.to_builtins(manifest)
    fields["crc32"] = _checksum(fields)
    path = folder / "manifest.json"
    path.write_bytes(msgspec.json.encode(fields))
    return path, lambda: (_foreign(folder), read_manifest(folder))


def checkpoint_config(folder):
    from rankhouse.models.checkpoint import read_config

    path = folder / "config.json"
    path.write_text('{"model_type": "bert", "hidden_size": 32}')
    return path, lambda: read_config(folder)


def note_of_store(folder):
    from rankhouse.stores.store import StoreContents, read_contents

    path = folder / "papers.json"
    path.write_text(StoreContents(source="f", documents=1, records=1, analyzer="english").to_json())
    return path, lambda: read_contents(path.read_bytes(), f"edge: {path}")


READERS = (
    settings, outcome, plan_of_adaptation, timetable_of_adaptation,
    mined, written_questions, threshold, labelling, files_of_up, progress_of_up,
    judgements, job_of_service, step_of_recipe, hashes_of_recipe, numbers_of_recipe,
    recipe, shard, report_of_shard, index_manifest, vectors_manifest,
    bundle_manifest, checkpoint_config, note_of_store,
)  # fmt: skip


def damages(sound):
    """Ways to damage a file: flipped bytes, cuts, other JSON, no JSON, absurdly deep nesting."""
    for place in range(0, len(sound), max(1, len(sound) // FLIPS)):
        for mask in (0x80, 1 << place % 7):
            yield sound[:place] + bytes([sound[place] ^ mask]) + sound[place + 1 :]
    yield from (
        b"",
        b"{}",
        b"[]",
        b"[1]",
        b"null",
        b"1",
        b'""',
        b"\n",
        b"{}\n",
        b"\x00" * len(sound),
        sound[:-2],
    )
    yield from (sound[: len(sound) // 2], sound + sound, b"\xff\xfe" + sound, sound.replace(b'"', b"\xe9", 1))
    yield from (DEEP, DEEP + b"\n", b"[" * 100_000, sound.replace(b"{", b'{"zz": ' + DEEP + b", ", 1))
    yield b"x = " + b"[" * 100_000


SLOW = [pytest.param(training_log, marks=pytest.mark.slow)]  # draws a picture each time


@pytest.mark.parametrize("reader", [*READERS, *SLOW], ids=lambda reader: reader.__name__)
def test_damage_is_an_error_that_names_the_file_or_is_mended(reader, tmp_path, capsys):
    path, read = reader(tmp_path)
    sound = path.read_bytes()
    read()
    path.write_bytes(sound)
    refused = 0
    for damaged in damages(sound):
        path.write_bytes(damaged)
        try:
            read()
        except RankhouseError as error:
            refused += 1
            text = str(error)
            assert path.name in text or str(path.parent) in text, (damaged[:80], text)
            assert len(text) < 2_000
        except RankhouseWarning:
            assert reader is labelling
        except Exception as error:  # noqa: BLE001 - what this test looks for
            pytest.fail(f"{damaged[:300]!r}: {error!r}")
        finally:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(sound)
    assert refused or "it is made again" in capsys.readouterr().err or reader in (labelling, job_of_service)


CHECKED = (outcome, timetable_of_adaptation, mined, job_of_service, step_of_recipe)


@pytest.mark.parametrize("reader", CHECKED, ids=lambda reader: reader.__name__)
def test_state_that_still_reads_but_is_different_is_never_taken_for_what_was_written(reader, tmp_path):
    path, read = reader(tmp_path)
    sound, before, refused = path.read_bytes(), read(), list[str]()
    for place in range(len(sound)):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        try:
            now = read()
        except RankhouseError as error:
            refused.append(str(error))
        else:
            failed = isinstance(now, list) and now[0].state == "failed" and path.name in now[0].fault
            assert now is None or now == before or failed, (place, now)
    assert all(path.name in reason for reason in refused)


def test_files_beside_a_finished_training_are_compared_too(tmp_path):
    path, read = outcome(tmp_path)
    log = path.with_name("log.jsonl")
    log.write_text('{"step": 2}\n')
    with pytest.raises(
        RankhouseError, match=r"log\.jsonl: was changed after it was written; train again into"
    ):
        read()
    log.unlink()
    with pytest.raises(RankhouseError, match=r"log\.jsonl: is gone; train again"):
        read()
    fields = json.loads(path.read_text())
    del fields["checksums"]
    path.write_text(json.dumps(fields))  # of an older version
    assert read().family == "x"
