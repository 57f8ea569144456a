"""Vectors that are beside a folder are copied where they are those that the encoder would give, and whole."""

import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from rankhouse.core.nouns import Document
from rankhouse.index.append_state import MANIFEST, PROGRESS, save_state
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, encode
from rankhouse.jobs.encode import copy_of_alike

DOCUMENTS = [Document(f"d{i}", "x" * (i + 1)) for i in range(50)]
JOB = EncodeOptions(len(DOCUMENTS), "collection")


class Lengths:
    """An encoder of two sides, of which that of passages tells lengths."""

    similarity, passage_fingerprint = "dot", "lengths"

    def __init__(self, fingerprint="lengths"):
        self.fingerprint = fingerprint

    def encode_passages(self, texts):
        return np.array([[len(text), 1, 2] for text in texts], np.float32)

    encode_queries = encode_passages


TAUGHT = Lengths("taught")


@pytest.fixture
def made(tmp_path):
    encode(Lengths(), DOCUMENTS, tmp_path / "made", JOB)
    return tmp_path / "made"


def rubbish(made):
    (made / MANIFEST).write_bytes(b"{}rubbish")


def of_a_later_version(made):
    save_state(msgspec.structs.replace(VECTORS.load(made / MANIFEST), version=9), made / MANIFEST)


def without_owners(made):
    (made / "owners.bin").unlink(missing_ok=True)


def with_another_number(made):
    (made / "vectors.bin").write_bytes(bytes(4) + (made / "vectors.bin").read_bytes()[4:])


def being_made(made):
    (made / MANIFEST).rename(made / PROGRESS)


def half_replaced(made):
    made.rename(made.with_name(".made.part"))


@pytest.mark.parametrize(
    "harm",
    [rubbish, of_a_later_version, without_owners, with_another_number, being_made, half_replaced],
)
def test_vectors_that_are_not_whole_are_made_instead(made, harm):
    harm(made)
    new = made.with_name("new")
    assert copy_of_alike(TAUGHT, new, JOB) is None
    assert not new.exists()
    encode(TAUGHT, DOCUMENTS, new, JOB).verify()


def test_vectors_whose_files_go_while_they_are_copied_are_made_instead(made, monkeypatch):
    plain = shutil.copyfile
    monkeypatch.setattr(shutil, "copyfile", lambda *paths: (without_owners(made), plain(*paths)))
    assert copy_of_alike(TAUGHT, made.with_name("new"), JOB) is None
    assert sorted(path.name for path in made.parent.iterdir()) == ["made"]


def test_damaged_ones_do_not_hide_others(made):
    encode(Lengths(), DOCUMENTS, made.with_name("a"), JOB)
    with_another_number(made.with_name("a"))
    copy_of_alike(TAUGHT, made.with_name("new"), JOB).verify()


def test_what_a_folder_holds_stays(made):
    new = made.with_name("new")
    new.mkdir()
    (new / "mine.txt").write_text("kept")
    assert copy_of_alike(TAUGHT, new, JOB) is None
    assert (new / "mine.txt").exists()
    (new / MANIFEST).write_bytes(b"rubbish")
    again = replace(JOB, overwrite=True)
    assert copy_of_alike(TAUGHT, new, again) is None
    encode(TAUGHT, DOCUMENTS, new, again).verify()


def test_copies_of_vectors_that_grow_hold_what_counts_and_grow_too(made):
    with (made / "vectors.bin").open("ab") as file:
        file.write(b"under way")
    copy = copy_of_alike(TAUGHT, made.with_name("new"), JOB)
    copy.verify()
    assert copy.state.encoder == "taught"
    more = EncodeOptions(len(DOCUMENTS) + 1, "larger")
    grown = encode(TAUGHT, [*DOCUMENTS, Document("e", "four")], copy.folder, more)
    grown.verify()
    assert grown.rows[50].tolist() == [4, 1, 2]
