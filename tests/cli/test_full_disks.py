"""A disk that is full: the message says which file, that it is full and what to do; nothing stands half."""

import errno
import os
import sqlite3
import subprocess

import numpy as np
import pytest

from rankhouse.core.errors import OutputFailed, StoreFailed
from rankhouse.core.nouns import Document, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.stores.names import open_store
from rankhouse.stores.pull import pull_impacts
from rankhouse.stores.push import PushOptions, push


@pytest.fixture
def index(tmp_path):
    build([Document(f"d{i}", f"ship number{i}") for i in range(60)], tmp_path / "i", BuildOptions(workers=1))
    return Index.open(tmp_path / "i")


@pytest.fixture
def disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]
    if (
        os.name != "posix"
        or os.geteuid()
        or subprocess.run(mount, check=False, capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
def test_a_push_to_a_full_disk_goes_on_when_there_is_room(index, disk):
    pytest.importorskip("qdrant_client")
    (disk / "ballast").write_bytes(b"x" * 200_000)
    spec = f"qdrant({str(disk / 'store')!r}, collection='papers')"
    store = open_store(spec)
    with pytest.raises(StoreFailed, match=r"papers: .*the disk is full: free some space and push again"):
        push(index, store, PushOptions(impacts="bm25"))
    store.close()
    (disk / "ballast").unlink()
    store = open_store(spec)
    if store.exists():
        with pytest.raises(StoreFailed, match="push again"):
            pull_impacts(store, [Query("q", "ship")])
    push(index, store, PushOptions(impacts="bm25"))
    assert len(pull_impacts(store, [Query("q", "ship")])["q"].doc_ids) == 60
    store.close()


def test_weights_that_do_not_fit_leave_the_bundle_that_was_there(tmp_path, monkeypatch):
    bundle = pytest.importorskip("rankhouse.models.bundle")
    folder = tmp_path / "mine"
    folder.mkdir()
    for name in (bundle.MANIFEST, bundle.WEIGHTS):
        (folder / name).write_text("{}")

    def full(*_):
        raise bundle.SafetensorError(
            "Error while serializing: I/O error: No space left on device (os error 28)"
        )

    monkeypatch.setattr(bundle, "save_file", full)
    monkeypatch.setattr(bundle, "fingerprint", lambda model: "f")
    model = type("Tiny", (), {"state_dict": dict, "assets": dict, "family": "x", "policy": {}})()
    with pytest.raises(OutputFailed, match=r"mine: cannot be written: the disk is full"):
        bundle.save(model, folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted((bundle.MANIFEST, bundle.WEIGHTS))


def test_sqlite_s_own_word_for_it_is_explained(tmp_path):
    from rankhouse.ranking.score_file import _explained

    fault = sqlite3.OperationalError("disk I/O error")
    fault.sqlite_errorcode = sqlite3.SQLITE_IOERR | 10 << 8
    said = str(_explained(tmp_path / "scores.sqlite", fault))
    assert "scores.sqlite: the score cache cannot be written: disk I/O error, most often a full disk" in said
    assert "free some space or name another path" in said
    assert "the disk is full" in str(_explained(tmp_path, OSError(errno.ENOSPC, "x")))


def test_scores_of_a_store_are_narrowed_in_silence(recwarn):
    from rankhouse.stores.pull import _rounded

    assert _rounded(1e300) == np.inf
    assert not [one for one in recwarn if "overflow" in str(one.message)]
