"""Limits of what is read, and JSON that is wrong in ways a decoder does not explain."""

import gzip
import json
import sys
from typing import Any

import msgspec
import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.decoding import MOST_NESTED, from_json
from rankhouse.io.files import numbered_lines, read_whole

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ANY = msgspec.json.Decoder()


def deep(levels):
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [MOST_NESTED, 1_000, 100_000])
def test_json_nested_too_deep_is_named_in_corpora_and_queries(tmp_path, levels):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "a", "text": "x"}\n{"id": "b", "text": "y", "more": ' + deep(levels) + "}\n")
    for read in (lambda: list(read_documents([path])), lambda: read_queries(path)):
        with pytest.raises(BadData, match=r"c\.jsonl, line 2: the JSON is nested more than 100 deep"):
            read()


def test_json_nested_as_deep_as_allowed_is_read(tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"id": "b", "text": "' + "[" * 500 + '", "more": ' + deep(MOST_NESTED - 1) + "}")
    assert len(list(read_documents([path]))) == 1


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (r'{"a": "\ud800"}', r"\\ud800 at byte 8 is half of a surrogate pair"),
        (r'{"a": "x\uDC01y"}', r"\\uDC01 at byte 9 is half"),
        (r'{"a": "\\ud800', "truncated"),
        (r'{"a": "\ud83d\ude00', "truncated"),
        (r'{"a": "\ud83dA"}', r"\\ud83d at byte 8 is half"),
    ],
)
def test_half_a_surrogate_pair_is_called_so(raw, said):
    with pytest.raises(BadData, match=rf"f, line 3: not good \(.*{said}.*\); write better"):
        from_json(ANY, raw.encode(), "not good; write better", "f", 3)


def test_a_line_is_read_up_to_the_limit_and_the_limit_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "q.tsv"
    path.write_bytes(b"1\tx\n2\t" + b"y" * 3000 + b"\n")
    monkeypatch.setenv("RANKHOUSE_MAX_RECORD", "2K")
    with pytest.raises(
        BadData, match=r"q\.tsv, line 2: the line has more than 2,048 bytes.*RANKHOUSE_MAX_RECORD"
    ):
        read_queries(path)
    with pytest.raises(BadData, match=r"q\.tsv: the file has more than 2,048 bytes"):
        read_whole(path)
    for enough in ("4k", "0", "999999999999999G"):
        monkeypatch.setenv("RANKHOUSE_MAX_RECORD", enough)
        assert len(read_queries(path)) == 2
        assert len(read_whole(path)) == 3007
    monkeypatch.setenv("RANKHOUSE_MAX_RECORD", "much")
    with pytest.raises(WrongUse, match='RANKHOUSE_MAX_RECORD="much": write a whole number'):
        read_queries(path)


def test_a_record_of_markup_that_never_ends_stops_at_the_limit(tmp_path, monkeypatch):
    path = tmp_path / "c.trec"
    path.write_text("\n<DOC>\n" + "a line of text\n" * 1000)
    monkeypatch.setenv("RANKHOUSE_MAX_RECORD", "1K")
    with pytest.raises(BadData, match="line 2: the <DOC> that begins here has more than 1,024 bytes"):
        list(read_documents([path]))


@pytest.mark.quick("compress")
@pytest.mark.parametrize("pack", [lambda raw: gzip.compress(raw, 9), zstd.compress])
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, pack):
    monkeypatch.setattr("rankhouse.io.files.ALWAYS", 2_000_000)
    path = tmp_path / "bomb.jsonl"
    path.write_bytes(pack(b"\n" * 3_000_000))
    with pytest.raises(BadData, match=r"bomb\.jsonl: the compressed data unpacks to more than 500 times"):
        sum(1 for _ in numbered_lines(path))
    path.write_bytes(pack(b"\n" * 1_000_000))
    assert sum(1 for _ in numbered_lines(path)) == 1_000_000


def test_a_byte_order_mark_and_utf_16_are_known(tmp_path):
    path = tmp_path / "q.tsv"
    path.write_bytes(b"\xef\xbb\xbf1\tx\n")
    assert read_queries(path)[0].id == "1"
    assert read_whole(path) == b"1\tx\n"
    path.write_bytes("\ufeff1\tx\n".encode("utf-16"))
    with pytest.raises(BadData, match="iconv -f utf-16"):
        read_queries(path)


@pytest.mark.parametrize(
    "record",
    ['{"id": 1, "\\u0069d": 2}', '{"caf\\u00e9": "a", "caf\\u00e9": "b"}', '{"a\\"b": 1, "a\\"b": 2}',
     '{"": 1, "": 2}', '{"id" : {"x": "y"}, "id": [{}]}'],
)  # fmt: skip
def test_a_key_given_twice_is_refused_however_it_is_written(record):
    decoder = msgspec.json.Decoder(dict[str, Any])
    with pytest.raises(BadData, match="is there twice"):
        from_json(decoder, record.encode(), "not a JSON object", None)


def test_keys_are_not_looked_for_one_by_one_in_a_large_object(monkeypatch):
    record = {"id": 'say "id"', "meta": {"id": ["id", {"id": 12345678901234567890123}]}, "back": "\\"}
    monkeypatch.setattr(json, "loads", None)
    for large in (record, {str(n): n for n in range(100_000)}):
        decoder = msgspec.json.Decoder(dict[str, Any])
        assert from_json(decoder, json.dumps(large).encode(), "not a JSON object", None) == large
