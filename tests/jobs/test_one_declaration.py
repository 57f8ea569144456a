"""An option is declared once, in a record: click, recipes, shards and the Python API take it from there."""

import inspect
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
from rankhouse.cli.main import cli
from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option, option_fields
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


def test_python_takes_every_option_of_reranking():
    taken = inspect.signature(rh.rerank).parameters
    assert {field.name for field in option_fields(RerankOptions)} <= taken.keys()


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
