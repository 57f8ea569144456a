"""An option is declared once, in a record: click, recipes, shards and the Python API take it from there."""

import dataclasses
import importlib.util
import inspect
import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, get_args

import click
import msgspec
import pytest
from click.testing import CliRunner

import rankhouse as rh
from rankhouse.adaptation.options import AdaptJob
from rankhouse.cli.commands.explain import ExplainChoices
from rankhouse.cli.commands.run import ProgramCommands
from rankhouse.cli.main import cli
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option, option_fields
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.jobs.calibration import CalibrateJob
from rankhouse.jobs.encode import EncodeJob
from rankhouse.jobs.index import IndexJob
from rankhouse.jobs.jobs import identity_of, pack
from rankhouse.jobs.label import LabelJob
from rankhouse.jobs.rerank import RerankJob
from rankhouse.jobs.search import SearchJob
from rankhouse.jobs.train import TrainJob
from rankhouse.recipes.commands import StepCommand
from rankhouse.systems.reranking import RerankOptions

RECORDS = {
    "index": IndexJob,
    "search": SearchJob,
    "encode": EncodeJob,
    "rerank": RerankJob,
    "label": LabelJob,
    "train": TrainJob,
    "adapt": AdaptJob,
    "calibrate": CalibrateJob,
    "explain": ExplainChoices,
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_command_has_every_option_of_its_record(name):
    command = cli.get_command(click.Context(cli), name)
    parameters = {parameter.name: parameter for parameter in command.params}
    for field in option_fields(RECORDS[name]):
        parameter = parameters[field.name]
        if isinstance(parameter, click.Option):
            assert field.option.help in parameter.help
        # Shards depend on what an input holds, so a record says which paths are inputs.
        assert field.option.kind != "value" or not {Path, Path | None} & {field.type, *get_args(field.type)}


@dataclass(frozen=True, kw_only=True)
class Extended(RerankJob):
    """The options of rerank, and one more, which is named nowhere else."""

    patience: Annotated[int, Option("How long it takes.", least=1)] = 3
    noisy: Annotated[bool, Option("Say more.", neutral=True)] = False


def test_a_new_option_reaches_click_recipes_and_shards():
    held = []

    @verb("rerank", "")
    def command(*, job: Extended, later: Annotated[str, Option("Of this command alone.")] = "x") -> None:
        held.append(job)
        assert later == "x"

    assert [one.name for one in command.params][-2:] == [
        "threads",
        "later",
    ]  # and no --json, without an answer
    given = {"run": "a.run", "queries": "q.tsv", "index": "i", "ranker": "mine", "patience": 5, "noisy": True}
    program = SimpleNamespace(names=["rerank"], command=lambda _: command)
    words = StepCommand(program, "rerank").words(given)
    assert CliRunner().invoke(command, words, obj="planned").exit_code == 0
    job = held[0]
    assert (job.patience, job.noisy, job.depth) == (5, True, 1000)
    assert CliRunner().invoke(command, [*words, "--patience", "0"]).exit_code == 2
    identity = identity_of(job, index="known")
    assert identity["patience"] == "5"
    assert "noisy" not in identity
    assert msgspec.convert(pack(job), Extended) == job


HASTE = {"threads", "device", "cache", "workers", "cluster", "cluster_workers", "worker_cpus"}


@pytest.mark.parametrize("name", RECORDS)
def test_keys_of_steps_leave_out_what_the_records_call_neutral(name):
    step = StepCommand(ProgramCommands(), name)
    neutral = {one.name for one in option_fields(RECORDS[name]) if one.option.neutral}
    every = {one.name: str(one.name) for one in step.keys.values()}
    left_out = every.keys() - {step.keys[key].name for key in step.telling(every)}
    assert left_out == (neutral | (HASTE & every.keys())) - {"alone", "shown"}
    assert {"rerank": {"alone"}, "label": {"shown"}}.get(name, set()) <= neutral  # of shards, not of reports
    if "changes" in every:
        assert step.telling({"changes": ("device=cpu", "devices=2")}) == {"set": "['devices=2']"}


def test_the_service_takes_every_setting_of_its_command(tmp_path, monkeypatch):
    pytest.importorskip("starlette")
    from rankhouse.serve.host import serving
    from rankhouse.serve.host.settings import ServeOptions, ServiceSettings

    held = []
    monkeypatch.setattr(serving, "start", lambda options, *_, **__: held.append(options))
    (tmp_path / "key").write_text("x")
    settings = {
        "host": "127.0.0.2", "port": 7, "key_file": tmp_path / "key", "split": "words(9)", "pool": "mean",
        "queries": tmp_path / "q", "qrels": tmp_path / "r", "judgements": tmp_path / "j",
        "allow_hosts": ("a", "b"), "access_log": tmp_path / "l", "audit": tmp_path / "a", "cluster": "ray",
        "replicas": 3, "partial": True,
    }  # fmt: skip
    fields = {one.name: one for one in option_fields(ServiceSettings)}
    assert settings.keys() <= fields.keys()
    assert fields.keys() <= {one.name for one in dataclasses.fields(ServeOptions)}
    words = ["serve", "i", "--ranker", "x=y"]
    for name, value in settings.items():
        flag = fields[name].option.flag or f"--{name.replace('_', '-')}"
        several = value if isinstance(value, tuple) else (value,)
        words += [flag] if value is True else [word for one in several for word in (flag, str(one))]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert {name: getattr(held[0], name) for name in settings} == settings
    assert (held[0].indexes, held[0].rankers) == ({"i": Path("i")}, {"x": "y"})
    assert CliRunner().invoke(cli, ["serve", "i", "--judgements", "mine.qrels"]).exit_code == 0
    assert held[1].audit == Path("mine.qrels.audit.jsonl")


def test_python_takes_every_option_of_reranking():
    """Its keywords are written out, for type checkers and for help: the one further place of an option."""
    taken = inspect.signature(rh.rerank).parameters
    assert {field.name for field in option_fields(RerankOptions)} <= taken.keys()


_DECLARED = 'passages: Annotated[int, Option("Passages read per document, at most.", least=1)] = 9'
NEW_OPTION = {
    "ranking/rerank.py": [
        ("class ReadingOptions:\n", f"class ReadingOptions:\n    {_DECLARED}\n"),
        ("    see: See | None = None\n", "    see: See | None = None\n    passages: int = 9\n"),
        ("pooled_ones(passages, plan.pool)", "pooled_ones(passages, plan.pool)[: plan.passages]"),
    ],
    "systems/reranking.py": [
        ("        split=split,\n", "        split=split,\n        passages=options.passages,\n"),
    ],
}
"""An option of rerank, added: file -> what is replaced by what."""

USES = """
import json, sys
from pathlib import Path
from click.testing import CliRunner
import rankhouse as rh
from rankhouse.cli.main import cli
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.io.trec import read_run
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions, named_systems
from rankhouse.serve.search.ranking import rank

ranker, asked, runs = sys.argv[1], "clouds over the sea", {}
def call(*words):
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    return done.output

def rerank(out, *more):
    call("rerank", "--run", "bm25.run", "--queries", "q.tsv", "--index", "i", "--ranker", ranker,
         "--split", "words(5)", "--pool", "max", "--depth", "10", "--tail", "drop", "--out", out, *more)

assert "--passages" in call("rerank", "--help")
rerank("all.run")
for few in "12":
    rerank(f"{few}.run", "--passages", few)
    rerank(f"{few}.1", "--passages", few, "--shard", "1/2")
    rerank(f"{few}.2", "--passages", few, "--shard", "2/2")
    call("merge", f"{few}.2", f"{few}.1", "--out", f"{few}.merged")
    text = f"bm25 % 10 >> open({ranker!r}, split=words(5), pool=max, passages={few})"
    system = rh.system(text)
    assert rh.system(str(system)) == system and f"passages={few}" in str(system)
    call("search", "--system", text, "--index", "i", "--queries", "q.tsv", "--out", f"{few}.system")
    named, rankers = named_systems([f"mine={text}"], {})
    service = open_service(ServeOptions(indexes={"i": Path("i")}, rankers=rankers, systems=named))
    service.warm()
    view = service.catalogue.view()
    served = rank(service.catalogue, view, service.catalogue.system("mine", view), Query("q0", asked))
    by_service = dict(zip(served.ranking.doc_ids, map(float, served.ranking.scores)))
    service.close()
    runs[few] = [dict(zip(run["q0"].doc_ids, map(float, run["q0"].scores))) for run in
                 (read_run(f"{few}.{end}") for end in ("run", "merged", "system"))] + [by_service]
done = CliRunner().invoke(cli, ["merge", "1.1", "2.2", "--out", "mixed"])
assert "passages" in str(done.exception), done.exception
try:
    rh.system("bm25 >> open('x', passages='few')")
except WrongUse as error:
    runs["fault"] = str(error)
runs["all"] = [rh.read_run("all.run")["q0"].scores.tolist()]
print("RUNS", json.dumps(runs))
"""


@pytest.mark.slow
def test_an_option_of_rerank_is_added_in_two_files(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("starlette")
    tiny = _tiny_models()
    package, copy = Path(rh.__file__).parent, tmp_path / "src" / "rankhouse"
    shutil.copytree(package, copy, copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__"))
    for name, changes in NEW_OPTION.items():
        text = (package / name).read_text()
        for old, new in changes:
            assert text.count(old) == 1, (name, old)
            text = text.replace(old, new)
        (copy / name).unlink()
        (copy / name).write_text(text)
    rng = random.Random(3)
    documents = [{"id": f"d{n}", "text": tiny.text(rng, 40, 30)} for n in range(12)]
    index = rh.Index.build(documents, tmp_path / "i", workers=1)
    queries = {f"q{n}": tiny.text(rng, 4, 3) for n in range(3)}
    (tmp_path / "q.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in queries.items()))
    rh.write_run(index.retrieve(queries), tmp_path / "bm25.run")
    ranker = tiny.tiny_model("tk", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "src"), "PYTHONWARNINGS": "ignore"}
    uses = USES.replace("clouds over the sea", queries["q0"])
    done = subprocess.run(
        [sys.executable, "-c", uses, ranker],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    runs = json.loads(done.stdout.split("RUNS ")[1])
    for few in "12":
        assert len(runs[few][0]) > 2
        assert all(one == runs[few][0] for one in runs[few])
    assert runs["1"][0] != runs["2"][0]
    assert sorted(runs["2"][0].values()) != sorted(runs["all"][0])
    assert "passages='few', but it takes a whole number" in runs["fault"]
    assert "^" in runs["fault"]


def _tiny_models():
    place = Path(__file__).parents[1] / "serve" / "tiny_models.py"
    spec = importlib.util.spec_from_file_location("tiny_models_of_jobs", place)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_python_fills_the_records_of_the_command_line(tmp_path, monkeypatch):
    held = []

    def stop(job, *_):
        held.append(job)
        raise KeyboardInterrupt

    monkeypatch.setattr(TrainJob, "train", stop)
    monkeypatch.setattr(AdaptJob, "adaptation", stop)
    index = rh.Index.build([{"id": "a", "text": "ships sail"}], tmp_path / "i")
    run, queries, qrels = rh.Run.of({"q": {"a": 1.0}}), {"q": "sail"}, {"q": {"a": 1}}
    with pytest.raises(KeyboardInterrupt):
        rh.train(
            "tk", index, out="o", queries=queries, teacher=run, validation=(queries, qrels, run), depth=7
        )
    with pytest.raises(KeyboardInterrupt):
        pair = queries, qrels
        rh.adapt(index, [run], out="o", test=pair, weigh=pair, kinds=["title", "span"], join="ranks")
    trained, adapted = held
    assert (trained.index, trained.queries, trained.teachers, trained.depth) == (index, queries, (run,), 7)
    assert (trained.valid_queries, trained.valid_qrels, trained.valid_run) == (queries, qrels, run)
    assert (adapted.teachers, adapted.join, adapted.kinds) == ((run,), "ranks", "title,span")
    assert (adapted.test_queries, adapted.test_qrels, adapted.test_run) == (queries, qrels, None)
    assert (adapted.weight_queries, adapted.weight_qrels) == (queries, qrels)


@pytest.mark.parametrize("verb", [rh.train, rh.adapt, rh.Index.build])
def test_defaults_in_python_are_those_of_the_record(verb):
    record = {"train": TrainJob, "adapt": AdaptJob, "build": IndexJob}[verb.__name__]
    taken = inspect.signature(verb).parameters
    shared = {one.name: one.default for one in option_fields(record) if one.name in taken} | {"loss": ""}
    shared.pop("kinds", None)  # one text there, a list here
    given = {name: taken[name].default for name in shared if name in taken}
    wrong = {n: one for n, one in given.items() if one not in (inspect.Parameter.empty, shared[n])}
    assert len(given) > 1
    assert not wrong


def test_an_explanation_has_one_record_of_options():
    """The command, ``rh.explain`` and ``System.explain`` take method, unit and passes as it declares them."""
    assert issubclass(ExplainChoices, ExplainOptions)
    record = {one.name: one for one in option_fields(ExplainOptions)}
    assert record.keys() == {"method", "unit", "passes"}
    assert not record.keys() & vars(ExplainChoices)["__annotations__"].keys()
    command = {one.name: one for one in option_fields(ExplainChoices)}
    for function in (rh.explain, rh.System.explain):
        taken = inspect.signature(function).parameters
        for name, declared in record.items():
            assert taken[name].default == declared.default == command[name].default
    alike = ("feedback", "fusion", "k", "split", "pool", "depth", "against", "top", "run", "before")
    taken = inspect.signature(rh.explain).parameters
    assert {name: taken[name].default for name in alike} == {name: command[name].default for name in alike}
