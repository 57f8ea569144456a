"""Start vectors for a vocabulary, from the files people have: GloVe, word2vec, fastText, token tables.

Files are streamed and only the vocabulary's own rows are kept, so a 5 GB file costs its reading time and not
its size in memory. Every fault names the file and the line.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, BadModel, MissingInput, WrongUse, needs, warn
from rankhouse.core.nouns import FloatArray
from rankhouse.io.files import as_text, lines_of, numbered_lines, open_bytes
from rankhouse.text.fasttext import MAGIC as FASTTEXT_MAGIC
from rankhouse.text.fasttext import FastText
from rankhouse.text.vocabulary import PADDING, Vocabulary

_ZIP_MAGIC = b"PK\x03\x04"
INTEGER_TABLE_STD = 0.3
"""Standard deviation given to a table of integers, which has no scale of its own; GloVe's order of size."""
MOST_NUMBERS = 65_536
"""The widest word vector that is read."""

Missing = Callable[[np.random.Generator, tuple[int, int], FloatArray], FloatArray]
"""Start of rows without a vector: (generator, shape (v, d), the known rows (f, d)) -> (v, d)."""


@dataclass(frozen=True)
class StartTable:
    """The rows an embedding starts from.

    Attributes:
        table: (v, d) float32, a row for every number of the vocabulary; row 0 (padding) is zero.
        known: (v,) bool, which rows came from the file.
    """

    table: FloatArray
    known: NDArray[np.bool_]


def like_the_known(rng: np.random.Generator, shape: tuple[int, int], known: FloatArray) -> FloatArray:
    """Draw from N(mean, std) with the scalar mean and std over all numbers read, as TK's authors do.

    Args:
        rng: Source of random numbers.
        shape: Of what is drawn.
        known: The numbers read, whose mean and deviation are taken.
    """
    mean, std = float(known.mean(dtype=np.float64)), float(known.std(dtype=np.float64))
    return rng.normal(mean, std, shape).astype(np.float32)


def uniform(bound: float = 0.05) -> Missing:
    """Draw from U(-bound, bound), as samCNN's authors do (their k = 0.05)."""

    def draw(rng: np.random.Generator, shape: tuple[int, int], known: FloatArray) -> FloatArray:  # noqa: ARG001 - one signature for all
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return draw


def random_table(vocabulary: Vocabulary, width: int, seed: int, std: float = INTEGER_TABLE_STD) -> StartTable:
    """Draw all rows from N(0, std): a start without any file; (v, d), row 0 zero.

    Args:
        vocabulary: The words, v of them.
        width: Numbers a word, d.
        seed: Of what is drawn.
        std: Standard deviation.
    """
    if width < 1:
        raise WrongUse(f"width={width}: a word vector has 1 number or more; 300 is usual")
    table = np.random.default_rng(seed).normal(0, std, (len(vocabulary), width)).astype(np.float32)
    table[PADDING] = 0
    return StartTable(table, np.zeros(len(vocabulary), dtype=bool))


def start_table(
    source: str | Path, vocabulary: Vocabulary, seed: int = 0, missing: Missing = like_the_known
) -> StartTable:
    """Read the start vectors of a vocabulary; rows the source does not know are drawn.

    Args:
        source: GloVe, word2vec or fastText text (plain, gzip, zstd, zip; of an archive with several files one
            is named after ``#``: ``glove.6B.zip#glove.6B.300d.txt``), a fastText ``.bin`` (every word gets a
            vector from its subwords), or a folder with ``tokenizer.json`` and ``model.safetensors`` (a word
            gets the mean of its pieces).
        vocabulary: The words wanted.
        seed: Seed of the rows drawn.
        missing: How they are drawn.

    Raises:
        MissingInput: There is no such file.
        BadData: Wrong width, header, number or encoding (with the line), or no word in common.
        MissingExtra: A token table needs tokenizers and safetensors.
    """
    by_row = _find(str(source), vocabulary)
    if not by_row:
        raise BadData(
            f"knows none of the {len(vocabulary.words):,} words of the vocabulary (which has for example "
            f"{', '.join(vocabulary.words[:5])}); is it of another language or case?",
            source,
        )
    rows = np.fromiter(by_row, np.int64, len(by_row))
    known = np.stack([by_row[row] for row in rows]).astype(np.float32)
    table = missing(np.random.default_rng(seed), (len(vocabulary), known.shape[1]), known)
    table[rows] = known
    table[PADDING] = 0
    mask = np.zeros(len(vocabulary), dtype=bool)
    mask[rows] = True
    return StartTable(table, mask)


def _find(source: str, vocabulary: Vocabulary) -> dict[int, FloatArray]:
    """Return row number -> vector for the words a source knows."""
    name, _, member = source.partition("#")
    path = Path(name)
    if path.is_dir():
        return _from_token_table(path, vocabulary)
    with open_bytes(path) as stream:
        start = stream.read(4)
    if start == FASTTEXT_MAGIC:
        model = FastText(path)
        words = enumerate(vocabulary.words, 2)
        vectors = ((row, model.vector(word)) for row, word in words)
        return {row: vector for row, vector in vectors if vector.any()}
    lines = _zip_lines(path, member) if start == _ZIP_MAGIC else numbered_lines(path)
    wanted = {word: row for row, word in enumerate(vocabulary.words, 2)}
    by_word = dict(read_text_vectors(lines, path, frozenset(word.encode() for word in wanted)))
    return {row: by_word[word] for word, row in wanted.items() if word in by_word}


def read_text_vectors(
    lines: Iterator[tuple[int, bytes]], path: Path, wanted: frozenset[bytes]
) -> Iterator[tuple[str, FloatArray]]:
    """Stream the wanted rows of a vector file as text: a word and d numbers a line, header or not.

    A first line of two whole numbers is the header of word2vec and fastText (words, width). A word may hold
    spaces (GloVe 840B does): the last d fields are the numbers. Of a word that comes twice the first counts.

    Yields:
        (word, (d,) float32).

    Raises:
        BadData: With the line: another width than the first line's, no number, not finite, not UTF-8.

    Warns:
        RankhouseWarning: Fewer or more words than the header says.
    """
    width, declared, rows = 0, -1, 0
    seen: set[bytes] = set()
    for number, line in lines:
        row = line.replace(b"\t", b" ").rstrip(b" ")
        if not row:
            continue
        if not width:
            declared, width = _first_line(row, path, number)
            if width > MOST_NUMBERS:
                raise BadData(
                    f"{width:,} numbers a word; at most {MOST_NUMBERS:,} are read, and 50 to 1,000 are "
                    "usual; is this a file of word vectors, one a line?",
                    path,
                    number,
                )
            if declared >= 0:
                continue
        rows += 1
        word = _word(row, width, path, number, headed=declared >= 0)
        if word in wanted and word not in seen:
            seen.add(word)
            yield word.decode(), _numbers(row[len(word) :], path, number)
    if not rows:
        raise BadData("holds no vectors; each line needs a word and its numbers", path)
    if declared >= 0 and rows != declared:
        warn(
            f"{path}: the header says {declared:,} words, but {rows:,} follow; if the file was cut off, "
            "copy it again"
        )


def _first_line(row: bytes, path: Path, number: int) -> tuple[int, int]:
    """Return (words declared or -1, width) as the first line tells them."""
    fields = row.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        if len(fields[0]) > 18 or len(fields[1]) > 18:
            raise BadData("the header says more words or numbers than any file holds", path, number)
        if int(fields[1]) < 1:
            raise BadData("the header says vectors of 0 numbers; it needs 1 or more", path, number)
        return int(fields[0]), int(fields[1])
    width = len(fields) - 1
    while width > 0 and not _is_number(fields[-width]):  # a first word that holds spaces
        width -= 1
    if width < 1:
        raise BadData(
            "is neither a header (words and width) nor a word followed by its numbers; vector files are "
            "text: word2vec's binary format must be saved as text first",
            path,
            number,
        )
    return -1, width


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def _word(row: bytes, width: int, path: Path, number: int, headed: bool) -> bytes:
    """Return the word of a row and check that ``width`` numbers follow it, and that it is UTF-8."""
    spaces = row.count(b" ")
    if spaces == width:
        word = row[: row.index(b" ")]
    elif spaces > width:
        word = row.rsplit(b" ", width)[0]
        if _is_number(word.rsplit(b" ", 1)[-1]) and b" " in word:
            raise BadData(_another_width(row, width, headed), path, number)
    else:
        raise BadData(_another_width(row, width, headed), path, number)
    if not word.isascii():
        as_text(word, path, number)
    return word


def _another_width(row: bytes, width: int, headed: bool) -> str:
    source = "the header says" if headed else "the first line has"
    return (
        f"this line has {len(row.split()) - 1} numbers, {source} {width} a word; "
        "the file is damaged or several files were joined"
    )


def _numbers(tail: bytes, path: Path, number: int) -> FloatArray:
    try:
        values = np.array([float(field) for field in tail.split()])
    except ValueError as error:
        raise BadData(f"{error}; each field after the word must be a number", path, number) from None
    if not (np.abs(values) <= np.finfo(np.float32).max).all():
        raise BadData("holds a number that is not finite (nan or inf, or too large)", path, number)
    return values.astype(np.float32)


def _zip_lines(path: Path, member: str) -> Iterator[tuple[int, bytes]]:
    """Stream the lines of one file in a zip archive; ``member`` may be left out if there is only one."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = [info.filename for info in archive.infolist() if not info.is_dir()]
            if not member and len(names) == 1:
                member = names[0]
            if member not in names:
                asked = f'holds no "{member}"' if member else "holds several files"
                raise BadData(f"{asked}; name one after the path, {path}#NAME: {', '.join(names)}", path)
            with archive.open(member) as stream:
                yield from lines_of(cast(BinaryIO, stream), path)
    except (zipfile.BadZipFile, EOFError) as error:
        raise BadData(f"the archive is damaged ({error}); copy it again", path) from error


def _from_token_table(folder: Path, vocabulary: Vocabulary) -> dict[int, FloatArray]:
    """Return each word the mean of its pieces' rows; a word with an unknown piece gets none."""
    with needs("neural", "start vectors from a token table"):
        from tokenizers import Tokenizer  # noqa: PLC0415 - optional packages, needed only here
    for name in ("tokenizer.json", "model.safetensors"):
        if not (folder / name).is_file():
            raise MissingInput(f"{folder}: needs tokenizer.json and model.safetensors; {name} is not there")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    # A file may ask for padding, which would average every word with a row of padding signs.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    table = _token_rows(folder / "model.safetensors", tokenizer.get_vocab_size())
    unknown = {tokenizer.token_to_id(token) for token in ("[UNK]", "<unk>", "<UNK>")}
    by_row = {}
    pieces = tokenizer.encode_batch(list(vocabulary.words), add_special_tokens=False)
    for row, encoded in enumerate(pieces, 2):
        ids = [i for i in encoded.ids if i not in unknown]
        if ids and len(ids) == len(encoded.ids):
            by_row[row] = table[ids].mean(axis=0)
    return by_row


def _token_rows(path: Path, size: int) -> FloatArray:
    """Read the token table of a safetensors file: (size or more, d) float32; integers get a usual scale."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 - comes with the same extra

    try:
        with safe_open(str(path), framework="numpy") as tensors:
            shapes = {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118 - not a dict
            fitting = [n for n, shape in shapes.items() if len(shape) == 2 and shape[0] >= size]
            fitting.sort(key=lambda n: (shapes[n][0] != size, "embed" not in n.lower(), n))
            if not fitting:
                raise BadModel(
                    f"{path}: no table has the {size:,} rows of tokenizer.json; its tables are "
                    f"{', '.join(f'{name} {shape}' for name, shape in list(shapes.items())[:6])}"
                )
            raw = tensors.get_tensor(fitting[0])
    except SafetensorError as error:
        raise BadModel(f"{path}: cannot be read as safetensors ({error}); copy the file again") from error
    except TypeError as error:
        raise BadModel(
            f"{path}: its number type cannot be read here ({error}); "
            "save the table as float32, float16 or int8"
        ) from error
    table: FloatArray = raw.astype(np.float32)
    if np.issubdtype(raw.dtype, np.integer):
        table *= INTEGER_TABLE_STD / max(float(table.std()), math.ulp(1.0))
    return table
