"""rankhouse export: a folder for other libraries with a model card, and its way to the hub."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
hub = pytest.importorskip("huggingface_hub")

from host_material import QRELS, QUERIES, TEXTS  # noqa: E402

import rankhouse as rh  # noqa: E402
from rankhouse.hosts.model_card import ModelCard  # noqa: E402
from rankhouse.hosts.sentence_transformers import save  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_fp32")]

GOLDEN = Path(__file__).parents[1] / "golden"
PAIRS = [(query, text) for query in QUERIES.values() for text in TEXTS.values()]


def own_scores(ranker):
    pairs = [rh.Pair(rh.Query("q", query), rh.Passage("d", 0, text)) for query, text in PAIRS]
    return ranker.score(pairs)


@pytest.fixture
def trained(folder, run):
    """The folder of a cross-encoder trained by the command line, with validation."""
    rh.write_qrels({q: dict.fromkeys(TEXTS, 0) | grades for q, grades in QRELS.items()}, "qrels.txt")
    run("search", "--index", "notes.index", "--queries", "queries.jsonl", "--out", "bm25.run")
    data = ("--queries", "queries.jsonl", "--qrels", "qrels.txt")
    valid = ("--valid-queries", "queries.jsonl", "--valid-qrels", "qrels.txt", "--valid-run", "bm25.run")
    settings = ("--set", "batch=4", "--set", "device=cpu", "--epochs", 1, "--seed", 3)
    begun = ("--ranker", 'crossencoder("ranker")', "--index", "notes.index")
    done = run("train", *begun, *data, *valid, *settings, "--out", "trained")
    assert done.returncode == 0, done.stderr
    return folder / "trained"


def test_a_training_writes_its_command_and_its_numbers(trained):
    command = (trained / "command.txt").read_text()
    assert command.startswith("rankhouse train ")
    for part in ("""--ranker 'crossencoder("ranker")'""", "--set batch=4", "--seed 3", "--out trained"):
        assert part in command
    cells = json.loads((trained / "validation.json").read_text())["cells"]
    assert {"first stage", "untaught", "trained"} <= {cell["system"] for cell in cells}
    assert all(cell["low"] <= cell["mean"] <= cell["high"] for cell in cells)


def test_a_card_says_what_a_training_knows_and_what_was_given(trained, run):
    done = run("export", "trained", "--license", "cc-by-4.0", "--data", "eight notes", "--language", "en",
               "--base-model", "someone/tiny-bert", "--out", "saved", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"folder": "saved", "todo": 0, "address": ""}
    card = hub.ModelCard.load("saved/README.md")
    assert card.data.license == "cc-by-4.0"
    assert card.data.base_model == "someone/tiny-bert"
    assert (card.data.library_name, card.data.pipeline_tag) == ("sentence-transformers", "text-ranking")
    assert card.data.language == ["en"]
    assert {"rankhouse", "cross-encoder"} <= set(card.data.tags)
    cells = json.loads((trained / "validation.json").read_text())["cells"]
    cell = next(c for c in cells if (c["system"], c["measure"]) == ("trained", "nDCG@10"))
    for part in (
        "Data: eight notes",
        f"`{(trained / 'command.txt').read_text().strip()}`",
        "seed = 3",
        f"{cell['mean']:.4f} ({cell['low']:.4f} to {cell['high']:.4f})",
        "rh.open_ranker(",
        "CrossEncoder(",
        "Licence: cc-by-4.0",
    ):
        assert part in card.text


def test_what_is_not_known_is_marked_and_counted(trained, run):
    done = run("export", str(trained / "ranker"), "--out", "saved")
    assert done.returncode == 0, done.stderr
    text = Path("saved/README.md").read_text()
    assert 'license: "other"  # TODO' in text
    assert "# base_model: TODO" in text
    assert "Command: not recorded" in text
    assert f"{text.count('TODO')} places say TODO" in done.stderr
    assert hub.ModelCard.load("saved/README.md").data.license == "other"


def test_a_folder_that_is_there_is_not_replaced(trained, run):
    assert run("export", "trained", "--out", "saved").returncode == 0
    before = Path("saved/README.md").read_bytes()
    done = run("export", "trained", "--license", "mit", "--out", "saved")
    assert done.returncode == 2
    assert "saved" in done.stderr
    assert Path("saved/README.md").read_bytes() == before
    assert "it is for --to" in run("export", "trained", "--out", "other", "--overwrite").stderr
    assert not Path("other").exists()


def test_the_base_model_is_that_of_the_command(trained):
    (trained / "command.txt").write_text("""rankhouse train --ranker 'biencoder("a/b", x=1)' --index i\n""")
    assert 'base_model: "a/b"' in ModelCard().text(rh.open_ranker(trained), "mine", trained)


def test_the_card_of_an_adapted_ranker_says_the_command(trained, run):
    Path("mine").mkdir()
    (trained / "ranker").rename("mine/ranker")  # as an adaptation keeps it: no settings beside the ranker
    Path("mine/command.txt").write_text("rankhouse adapt --index i --out mine\n")
    assert run("export", "mine", "--out", "saved").returncode == 0
    assert "Command: `rankhouse adapt --index i --out mine`" in Path("saved/README.md").read_text()


@pytest.mark.outside
def test_the_folder_opens_in_sentence_transformers_with_the_same_scores(trained, run, bert):
    st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    assert run("export", "trained", "--out", "saved").returncode == 0
    theirs = st.CrossEncoder("saved", device="cpu").predict(PAIRS)
    assert theirs == pytest.approx(own_scores(rh.open_ranker("trained")), abs=1e-5)
    ranker = f'biencoder("{bert("BertModel")}", pooling="mean")'
    assert run("export", ranker, "--out", "vectors").returncode == 0
    found = st.SentenceTransformer("vectors", device="cpu").encode_document(list(TEXTS.values()))
    assert found == pytest.approx(rh.open_ranker(ranker).encode_passages(list(TEXTS.values())), abs=1e-5)
    card = hub.ModelCard.load("vectors/README.md").data
    assert (card.pipeline_tag, card.library_name) == ("sentence-similarity", "sentence-transformers")


def test_a_monot5_has_a_card_of_transformers(tmp_path):
    published = shutil.copytree(GOLDEN / "monot5" / "tiny_t5_v1_0", tmp_path / "published")
    shutil.copy(GOLDEN / "monot5" / "spiece.model", published)
    ranker = rh.open_ranker(f'monot5("{published}")')
    save(ranker, tmp_path / "saved", card=ModelCard(license="mit", data="none"))
    card = hub.ModelCard.load(tmp_path / "saved" / "README.md")
    assert (card.data.library_name, card.data.pipeline_tag) == ("transformers", "text-ranking")
    assert "AutoModelForSeq2SeqLM" in card.text
    again = rh.open_ranker(f'monot5("{tmp_path / "saved"}")')
    assert own_scores(again) == pytest.approx(own_scores(ranker), abs=1e-5)


@pytest.mark.outside
def test_a_hub_that_cannot_be_reached_is_said_in_a_sentence(trained):
    program = [sys.executable, "-m", "rankhouse", "export", "trained", "--out", "saved", "--to", "me/mine"]
    around = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}
    around |= {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_TOKEN": "hf_none"}
    done = subprocess.run(program, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert '"me/mine" could not be uploaded' in done.stderr
    assert "Traceback" not in done.stderr
    assert "saved is whole: log in with  hf auth login" in done.stderr
    assert {"README.md", "config.json", "model.safetensors"} <= {p.name for p in Path("saved").iterdir()}


def test_a_name_that_the_hub_cannot_have_is_refused(trained, run):
    done = run("export", "trained", "--out", "saved", "--to", "not a name")
    assert done.returncode == 1
    assert "HFValidationError" in done.stderr
    assert Path("saved/README.md").is_file()


def test_a_name_on_the_hub_is_looked_up_and_a_folder_is_not(monkeypatch, tmp_path):
    from rankhouse.core.errors import BadModel, MissingInput
    from rankhouse.hosts.sentence_transformers import CrossEncoder

    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        MissingInput, match='"nobody/nothing" is no folder here, and could not be had from the'
    ):
        CrossEncoder("nobody/nothing").predict([("a", "b")])
    Path("runs/mine").mkdir(parents=True)
    with pytest.raises(BadModel, match='"runs/mine" is no ranker saved by rankhouse'):
        CrossEncoder("runs/mine").predict([("a", "b")])
