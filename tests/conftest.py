"""Settings of all tests: examples are the same on every machine, and the quick tier stays quick."""

import os
import signal
import sys
import threading
import warnings
from collections import Counter
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, settings

# Several workers with a thread a core each would wait for one another at every step of a network.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Expected numbers are those of the processor, and a card would compute in bf16 where nothing else is said.
# CUDA_VISIBLE_DEVICES=0 makes the tests use one all the same.
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

settings.register_profile(
    "house", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("house")

# A shell ignores Ctrl-C for what it starts in the background, and every child would ignore it too.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


TIERS = ("slow", "outside", "kill")
OUTSIDE = {"browser", "cluster", "postgres"}
"""Fixtures that start a program of other people."""
ENGINES = {"lancedb", "milvus", "postgres"}
"""Stores whose own engine a test starts or loads."""
LIMIT = float(os.environ.get("RANKHOUSE_TIER_LIMIT", "inf"))
"""Seconds of processor time that an unmarked test may take."""
LONGEST = (
    "cluster/test_commands", "test_docs", "recipes/test_recipes", "cluster/test_kills",
    "cluster/test_search_kills", "adaptation/test_adapt", "serve/outside/test_load",
    "nn/test_wide_loops", "hosts/test_extension", "cluster/test_remote", "serve/outside/test_clients",
    "serve/page/test_page_safety", "cli/test_train_command", "explanation/test_acceptance",
    "cluster/test_shards", "attack/test_attack", "cluster/test_full_store",
)  # fmt: skip
"""Files of tests that take longest: a worker that began one of them last would keep the others waiting."""
COST = "processor seconds"
MANY_MODULES = 50
too_costly: list[str] = []

BERT = Path(__file__).parent / "golden" / "bert"


def processor_seconds():
    """Return the time of this process and of children that ended; other processes add little to it."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark parameters that are not quick and what needs a program of other people, first; sort files.

    Workers take files in this order (--no-loadscope-reorder): what takes longest, then by number of tests.
    """
    files = Counter(item.nodeid.partition("::")[0] for item in items)
    places = {f"tests/{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(
        key=lambda item: (places.get(file := item.nodeid.partition("::")[0], len(places)), -files[file], file)
    )
    for item in items:
        quick = item.get_closest_marker("quick")
        if quick and not any(fnmatch(item.callspec.id, pattern) for pattern in quick.args):
            item.add_marker("slow")
        kind = item.callspec.params.get("kind") if hasattr(item, "callspec") else None
        if OUTSIDE & set(item.fixturenames) or (kind in ENGINES and "address" in item.fixturenames):
            item.add_marker("outside")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Note what a test costs, unless it is the first to import a library."""
    before, known = processor_seconds(), len(sys.modules)
    try:
        return (yield)
    finally:
        if len(sys.modules) - known < MANY_MODULES:
            item.user_properties.append((COST, processor_seconds() - before))


def pytest_runtest_logreport(report):
    """Collect the costly tests, in the process that reports to the user."""
    cost = dict(report.user_properties).get(COST, 0)
    is_marked = any(name in report.keywords for name in (*TIERS, "always"))
    if report.when == "call" and cost > LIMIT and not is_marked:
        too_costly.append(f"{report.nodeid}: {cost:.1f} s of processor time")


def pytest_terminal_summary(terminalreporter):
    """List the costly tests."""
    if too_costly:
        terminalreporter.section(f"unmarked tests over {LIMIT:g} s: mark them slow, or make them quicker")
        terminalreporter.write_line("\n".join(too_costly))


def pytest_sessionfinish(session):
    """Fail a session with costly tests that passed otherwise."""
    if too_costly and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


class Outline(HTMLParser):
    """Collects tags, attributes, text and ids of a page, and refuses tags that do not match."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.references, self.ids, self.text = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.references += [
            v for k, v in attributes if k in ("src", "href", "xlink:href", "srcset", "action")
        ]
        self.ids += [v for k, v in attributes if k == "id"]
        if tag not in ("meta", "br", "hr", "link", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="session")
def outline_of():
    """From a page to its :class:`Outline`."""
    return Outline


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """Write a tiny BERT of some kind with random weights and its vocabulary; gives the folder."""

    def make(name, **more):
        import torch
        import transformers
        from transformers.utils import logging

        logging.disable_progress_bar()
        torch.manual_seed(3)
        folder = tmp_path_factory.mktemp(name)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        config = transformers.BertConfig(vocab_size=271, max_position_embeddings=64, **(sizes | more))
        network = getattr(transformers, name)(config)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
        network.save_pretrained(folder)
        tokenizer = transformers.BertTokenizerFast(str(BERT / "vocab.txt"), model_max_length=64)
        tokenizer.save_pretrained(folder)
        return folder

    return make


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the program in tmp_path, in this process; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")

    from rankhouse.cli.main import main

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rankhouse", *map(str, arguments)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code or 0, *capsys.readouterr())

    return call
