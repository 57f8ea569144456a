"""Bodies that the service accepts, and errors that name the others."""

import json
from typing import Annotated, Any

import msgspec
import pytest

from rankhouse.serve.contracts.requests import decode
from rankhouse.serve.errors import Empty, Invalid, Malformed


class Body(msgspec.Struct):
    query: str
    documents: Annotated[list[str | dict[str, Any]], msgspec.Meta(min_length=1)]
    top_n: int | None = None


@pytest.mark.parametrize(
    "body",
    [
        b'{"query": "q", "documents": ["a"], "top_n": null, "priority": 3, "unknown": {"deep": [1]}}',
        b'  {"documents": [{"text": "a"}, "b"], "query": ""}\n',
    ],
)
def test_nulls_and_unknown_fields_pass(body):
    assert decode(body, Body).top_n is None


def test_half_a_surrogate_pair_becomes_a_sign_and_moves_nothing():
    assert decode(b'{"query": "q\\ud800!", "documents": ["\\ud83d\\ude00 \\uDFFF"]}', Body) == Body(
        "q\ufffd!", ["\U0001f600 \ufffd"]
    )


def test_a_whole_number_may_have_a_point():
    assert decode(b'{"query": "q", "documents": ["a"], "top_n": 3.0, "other": 0.5}', Body).top_n == 3
    with pytest.raises(Invalid, match="top_n"):
        decode(b'{"query": "q", "documents": ["a"], "top_n": 3.5}', Body)


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        (b'{"query": "q", "documents": ["a", "b", 3]}', "documents[2]", "got `int`"),
        (b'{"query": "\\udc00", "documents": ["a", "b", 3]}', "documents[2]", "got `int`"),
        (b'{"query": "q", "documents": "a"}', "documents", "expected `array`"),
        (b'{"query": "q", "documents": ["a"], "top_n": "1"}', "top_n", "got `str`"),
        (b'{"query": null, "documents": ["a"]}', "query", "got `null`"),
        (b'{"documents": ["a"]}', "query", "query: is missing"),
        (b"[1]", None, "the body: expected `object`, got `array`"),
    ],
)
def test_the_wrong_field_is_named(body, param, said):
    with pytest.raises(Invalid) as refused:
        decode(body, Body)
    assert refused.value.param == param
    assert said in str(refused.value)


class Bounded(msgspec.Struct):
    query: Annotated[str, msgspec.Meta(max_length=2_000)] = ""
    k: Annotated[int, msgspec.Meta(ge=1)] = 1
    id: Annotated[str, msgspec.Meta(min_length=1)] = "a"
    names: Annotated[dict[str, str], msgspec.Meta(max_length=1)] = {}


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"k": 0}, "k: must be at least 1"),
        ({"query": "q" * 9_999}, "query: must be at most 2,000 characters"),
        ({"id": ""}, "id: must be at least 1 character$"),
        ({"names": {"a": "", "b": ""}}, "names: expected `object` of length <= 1"),
    ],
)
def test_bounds_are_said_in_words(field, said):
    with pytest.raises(Invalid, match=said):
        decode(json.dumps(field).encode(), Bounded)


def test_an_empty_list_has_its_own_kind():
    with pytest.raises(Empty):
        decode(b'{"query": "q", "documents": []}', Body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b'{"query": "q',
        b"\xff\xfe",
        b'{"query": "\xed\xa0\x80"}',
        b'{"query": NaN}',
        b'{"\\ud800": NaN}',
        b'{"query": "q", "documents": ["a"], "x": ' + b"[" * 100_000,
        b"\\ud800" + b"[" * 100_000,
    ],
)
def test_what_is_no_json_is_said_to_be_none(body):
    with pytest.raises(Malformed, match="not JSON"):
        decode(body, Body)
