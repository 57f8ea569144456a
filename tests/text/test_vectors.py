import gzip
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from rankhouse.core.errors import BadData, BadModel, MissingInput, RankhouseWarning, WrongUse
from rankhouse.io.files import numbered_lines
from rankhouse.text.fasttext import FastText, subwords
from rankhouse.text.vectors import random_table, read_text_vectors, start_table, uniform
from rankhouse.text.vocabulary import Vocabulary

GOLDEN = Path(__file__).parents[1] / "golden" / "fasttext"
SAMPLES = Path(__file__).parents[3] / "shared" / "data" / "resources"
ROWS = "the 0.5 -1 2\n, 1e-1 0 0\n. . . 7 8 9\ncat 3 4 5 \n"


def vocabulary(*words):
    return Vocabulary.count([words], 1)


KNOWN = vocabulary("the", "cat", "unheard")


def row(table, words, word):
    return table.table[words.ids([word])[0]].tolist()


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text(ROWS, "utf-8")
    return path


@pytest.mark.parametrize("header", ["", "4 3\n", "\ufeff4 3\n"])
@pytest.mark.parametrize("packing", ["plain", "gzip", "zip"])
def test_every_packing_gives_the_same_rows(tmp_path, header, packing):
    path = tmp_path / "vectors.any"
    content = (header + ROWS).encode()
    if packing == "zip":
        if header.startswith("\ufeff"):
            pytest.skip("a mark inside an archive is not met in practice")
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("glove.txt", content)
    else:
        path.write_bytes(gzip.compress(content) if packing == "gzip" else content)
    start = start_table(path, KNOWN)
    assert start.table.shape[1] == 3
    assert row(start, KNOWN, "the") == [0.5, -1, 2]
    assert row(start, KNOWN, "cat") == [3, 4, 5]
    assert start.known.tolist() == [False, False, True, True, False]
    assert start.known[2:].mean() == pytest.approx(2 / 3)
    assert not start.table[0].any()


def test_missing_words_are_drawn_like_the_words_read(tmp_path):
    rng = np.random.default_rng(5)
    path = tmp_path / "many.txt"
    lines = [f"w{i} " + " ".join(map(str, rng.normal(0.7, 0.2, 20))) for i in range(400)]
    path.write_text("\n".join(lines))
    words = vocabulary(*(f"w{i}" for i in range(200, 600)))
    start = start_table(path, words, seed=3)
    drawn = start.table[~start.known][1:]
    assert drawn.shape == (201, 20)  # 200 words and the one row of all unknown words
    assert drawn.mean() == pytest.approx(start.table[start.known].mean(), abs=0.02)
    assert drawn.std() == pytest.approx(start.table[start.known].std(), abs=0.02)
    assert np.array_equal(start.table, start_table(path, words, seed=3).table)
    assert not np.array_equal(start.table, start_table(path, words, seed=4).table)


def test_missing_words_may_be_drawn_uniformly(glove):
    start = start_table(glove, KNOWN, missing=uniform(0.05))
    assert np.abs(start.table[[1, 4]]).max() <= 0.05
    assert start.table[1].any()


def test_words_with_spaces_and_in_other_case(glove):
    assert row(start_table(glove, vocabulary(". . .")), vocabulary(". . ."), ". . .") == [7, 8, 9]
    shouting = vocabulary("THE", "cat")
    assert not start_table(glove, shouting).known[shouting.ids(["THE"])[0]]


def test_the_first_of_two_rows_of_a_word_counts(tmp_path):
    path = tmp_path / "twice.txt"
    path.write_text("a 1 2\na 3 4\n")
    assert row(start_table(path, vocabulary("a")), vocabulary("a"), "a") == [1, 2]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"a 1 2 3\nb 1 2\n", 2, "this line has 2 numbers, the first line has 3"),
        (b"a 1 2 3\nb 1 2 3 4\n", 2, "this line has 4 numbers, the first line has 3"),
        (b"2 4\na 1 2 3\n", 2, "this line has 3 numbers, the header says 4"),
        (b"2 0\na 1 2 3\n", 1, "vectors of 0 numbers"),
        (b"a 1 2\na 1 x\nthe 1 x\n", 3, "must be a number"),
        (b"the 1 nan\n", 1, "not finite"),
        (b"the 1 1e99\n", 1, "not finite"),
        (b"a 1 2\n\xc4\xe3 1 2\n", 2, "not UTF-8"),
        (b"just words here\n", 1, "neither a header"),
        (b"a 1 2\nb 1 2\n", None, "none of the 3 words"),
        (b"\n\n", None, "holds no vectors"),
        (b"", None, "holds no vectors"),
        (gzip.compress(b"the 1 2\n" * 9000, mtime=0)[:-40], None, "ends too early"),
        (b"PK\x03\x04 no archive", None, "archive is damaged"),
    ],
)
def test_faults_name_file_and_line(tmp_path, content, line, reason):
    path = tmp_path / "faulty.txt"
    path.write_bytes(content)
    with pytest.raises(BadData, match=reason) as caught:
        start_table(path, KNOWN)
    assert str(caught.value.path) == str(path)
    assert caught.value.line == line


def test_a_header_that_counts_wrongly_is_reported(tmp_path):
    path = tmp_path / "short.vec"
    path.write_text("5 2\nthe 1 2\n")
    with pytest.warns(RankhouseWarning, match="5 words, but 1 follow"):
        assert start_table(path, KNOWN).table.shape[1] == 2


def test_one_of_several_files_in_an_archive_is_named(tmp_path):
    path = tmp_path / "glove.6B.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("50d.txt", "the 1 2\n")
        archive.writestr("100d.txt", "the 1 2 3\n")
    assert start_table(f"{path}#100d.txt", KNOWN).table.shape[1] == 3
    with pytest.raises(BadData, match=r"several files.*50d.txt, 100d.txt"):
        start_table(path, KNOWN)


def test_absent_files_and_empty_widths_are_refused(tmp_path):
    with pytest.raises(MissingInput, match="no such file"):
        start_table(tmp_path / "absent.txt", KNOWN)
    with pytest.raises(WrongUse, match="width=0"):
        random_table(KNOWN, 0, seed=1)
    start = random_table(KNOWN, 7, seed=1)
    assert start.table.shape == (5, 7)
    assert not start.table[0].any()


def test_fasttext_vectors_equal_those_of_the_library():
    model = FastText(GOLDEN / "tiny.bin")
    expected = json.loads((GOLDEN / "expected.json").read_text("utf-8"))
    for word, vector in expected.items():
        np.testing.assert_allclose(model.vector(word), vector, rtol=1e-5, atol=1e-8)


def test_no_word_is_unknown_to_fasttext():
    words = vocabulary("rank", "neverseenword", "日本語")
    start = start_table(GOLDEN / "tiny.bin", words)
    assert start.known[2:].all()
    assert start.table[2:].any(axis=1).all()


def test_subwords_are_marked_at_both_ends():
    assert list(subwords("ab", 3, 5)) == ["<ab", "<ab>", "ab>"]
    assert list(subwords("a", 1, 2)) == ["<a", "a", "a>"]


@pytest.mark.parametrize("keep", [4, 40, 100, 130, 3000])
def test_a_fasttext_file_cut_off_anywhere_is_refused(tmp_path, keep):
    content = (GOLDEN / "tiny.bin").read_bytes()[:keep]
    if keep == 3000:
        content = (GOLDEN / "tiny.bin").read_bytes()[:1200]
    path = tmp_path / "cut.bin"
    path.write_bytes(content)
    with pytest.raises(BadData, match=r"cut off|copy it again"):
        start_table(path, KNOWN)


def token_table(folder, table):
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, models, pre_tokenizers

    pieces = {"[UNK]": 0, "cat": 1, "##s": 2, "un": 3, "##heard": 4}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": table, "other": np.zeros(3, np.float32)}, folder / "model.safetensors")


def test_a_word_takes_the_mean_of_its_pieces(tmp_path):
    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    token_table(tmp_path, table)
    words = vocabulary("cats", "unheard", "日本")
    start = start_table(tmp_path, words)
    assert row(start, words, "cats") == ((table[1] + table[2]) / 2).tolist()
    assert start.known.sum() == 2


def test_whole_numbers_get_a_usual_scale_and_keep_their_directions(tmp_path):
    table = np.random.default_rng(0).integers(-127, 128, (5, 32)).astype(np.int8)
    token_table(tmp_path, table)
    words = vocabulary("cat", "cats")
    start = start_table(tmp_path, words)
    mine, raw = np.array(row(start, words, "cat")), table[1].astype(float)
    assert mine @ raw == pytest.approx(np.linalg.norm(mine) * np.linalg.norm(raw))
    assert 0.1 < mine.std() < 0.6


def test_a_tokenizer_that_pads_or_truncates_by_itself_does_not_mix_padding_into_words(tmp_path):
    from tokenizers import Tokenizer

    table = np.arange(10, dtype=np.float32).reshape(5, 2)
    token_table(tmp_path, table)
    plain = start_table(tmp_path, KNOWN)
    path = str(tmp_path / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.enable_padding(length=64)
    tokenizer.enable_truncation(1)
    tokenizer.save(path)
    assert np.array_equal(start_table(tmp_path, KNOWN).table, plain.table)


def test_a_token_table_of_another_tokenizer_is_refused(tmp_path):
    token_table(tmp_path, np.zeros((3, 2), np.float32))
    with pytest.raises(BadModel, match=r"no table has the 5 rows.*embeddings \[3, 2\]"):
        start_table(tmp_path, KNOWN)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadModel, match="safetensors"):
        start_table(tmp_path, KNOWN)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(MissingInput, match=r"model.safetensors is not there"):
        start_table(tmp_path, KNOWN)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published sample files are not on this machine")
def test_published_samples_are_read():
    words = vocabulary("the", "house", "ranking")
    glove = start_table(SAMPLES / "word_vectors" / "glove_1000x300.txt.gz", words)
    assert glove.table.shape[1] == 300
    assert glove.known[words.ids(["house"])[0]]
    assert start_table(SAMPLES / "potion-base-4m-int8", words).known[2:].all()
    with pytest.raises(BadData, match="not UTF-8"):
        start_table(SAMPLES / "word_vectors" / "broken_gb2312.txt", words)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("a" + " 1" * 70_000, "70,000 numbers a word; at most 65,536"),
     ("2 70000\na 1\n", "70,000 numbers a word"),
     ("2 " + "9" * 5000 + "\na 1\n", "the header says more words or numbers than any file")],
)  # fmt: skip
def test_absurdly_wide_vectors_are_refused(tmp_path, content, complaint):
    path = tmp_path / "v.txt"
    path.write_text(content)
    with pytest.raises(BadData, match=rf"v\.txt, line 1: .*{complaint}"):
        list(read_text_vectors(numbered_lines(path), path, frozenset([b"a"])))
