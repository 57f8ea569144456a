"""doc2query: what a T5 writes about a document, against transformers' own decoding."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.models.doc2query import Doc2Query, open_doc2query
from rankhouse.models.monot5 import open_t5
from rankhouse.nn.machine import Compute

GOLDEN = Path(__file__).parents[1] / "golden" / "monot5"
DOCUMENTS = [
    Document(f"d{n}", text)
    for n, text in enumerate(
        [
            "A lock lifts ships between two levels of water.",
            "Pilots board ships and steer them into the harbour at night. " * 3,
            "Coal",
        ]
    )
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("t5") / "t5"
    shutil.copytree(GOLDEN / "tiny_t5_v1_0", folder)
    shutil.copy(GOLDEN / "spiece.model", folder)
    return str(folder)


@pytest.mark.slow
def test_the_likeliest_tokens_are_those_of_transformers(folder):
    checkpoint = open_t5(folder, "doc2query")
    ask = Doc2Query(checkpoint, count=1, top=1, longest=12, max_length=20, compute=Compute())
    for document in DOCUMENTS:
        ids = checkpoint.tokenizer.encode(document.full_text, add_special_tokens=False).ids[:19]
        with torch.inference_mode():
            said = checkpoint.network.generate(
                torch.tensor([[*ids, checkpoint.end]]), do_sample=False, num_beams=1, max_new_tokens=12
            )[0, 1:].tolist()
        said = said[: said.index(checkpoint.end)] if checkpoint.end in said else said
        assert ask(document) == [text] if (text := checkpoint.tokenizer.decode(said).strip()) else []


@pytest.mark.slow
def test_draws_depend_on_seed_and_document_alone(folder):
    ask = open_doc2query(folder, count=4, longest=10)
    torch.manual_seed(1)
    first = [ask(document, seed=3) for document in DOCUMENTS]
    torch.manual_seed(2)
    again = [ask(document, seed=3) for document in reversed(DOCUMENTS)][::-1]
    assert first == again
    assert first != [ask(document, seed=4) for document in DOCUMENTS]
    assert all(1 < len(texts) == len(set(texts)) <= 4 for texts in first)
    prompted = open_doc2query(folder, count=4, longest=10, prompt="ask: ")
    assert prompted(DOCUMENTS[0], seed=3) != first[0]


def test_what_cannot_ask_is_refused(folder, bert):
    with pytest.raises(WrongUse, match="count=0"):
        open_doc2query(folder, count=0)
    with pytest.raises(BadModel, match="doc2query reads T5 and mT5 only"):
        open_doc2query(str(bert("BertModel")))
