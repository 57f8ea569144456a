"""Late-interaction checkpoints as published: Stanford's ColBERT, PyLate, sentence-transformers 6."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from tokenizers import Tokenizer
from torch import nn

from rankhouse.core.errors import BadModel
from rankhouse.models.checkpoint import (
    encoder_class,
    find,
    load_network,
    load_tokenizer,
    read_config,
    read_json,
    read_tensor,
)
from rankhouse.models.checkpoint_kinds import library_settings, modules_of, require
from rankhouse.models.colbert import LateInteraction
from rankhouse.models.sentence_transformers import read_layers, read_settings, read_transformer
from rankhouse.models.transformer_encoders import length_limit

_USUAL_QUERY: Final = 32
_PUNCTUATION: Final = tuple(string.punctuation)


_Mark = tuple[str, str]
"""Text put before another: PyLate's prefix or Stanford's token, then the prompt."""


class _Settings(NamedTuple):
    """Settings of a folder, besides weights."""

    transformer: Path  # folder of the transformer itself
    # kind and folder of the layers behind it; empty where "linear.weight" stands beside its weights
    layers: tuple[tuple[str, Path], ...] = ()
    marks: tuple[_Mark, _Mark] = (("", ""), ("", ""))  # put before queries and before passages
    # whether the marks are single tokens of the vocabulary even if it does not say so
    known_marks: bool = False
    query_length: int | None = None  # most tokens of a query; None: the tokenizer says
    filled: int = 0  # what queries are filled up to; 0: they are not
    attend: bool = False  # whether all tokens read what fills a query up
    filler: str | None = None  # the token that does; None: the mask
    document_length: int | None = None  # most tokens of a passage; None: the tokenizer says
    skipped: Sequence[str] = ()  # tokens that do not count
    skipped_sides: Sequence[str] = ("document",)  # "document", "query"
    similarity: str = "maxsim"  # "maxsim" or "meanmaxsim"
    own: Mapping[str, Any] = {}  # what the Transformer module says of how it reads texts
    normalised: bool = True  # whether vectors are given length 1


def open_colbert(
    path: str,
    max_length: int | None = None,
    query_length: int | None = None,
    tokenizer: str | None = None,
    allow_pickle: bool = False,
    from_encoder: bool = False,
) -> LateInteraction:
    """Open a published checkpoint: ``colbert("colbert-ir/colbertv2.0")``.

    Args:
        path: A folder or hub name, in the form of Stanford's code, of PyLate or of sentence-transformers 6.
        max_length: Most tokens of a passage; None: what the folder says.
        query_length: Most tokens of a query, also those that it is filled up to; None: what the folder says.
        tokenizer: Folder of another tokenizer than the checkpoint's own.
        allow_pickle: Whether weights may be read from pytorch_model.bin.
        from_encoder: The folder is a bi-encoder's, whose vector of a text is the mean of its tokens' vectors:
            these are compared, untrained. Marks around a query do not count; matches are averaged.

    Raises BadModel: no late-interaction model, or one of a form that is not read here, or damaged; WrongUse:
    more tokens than the network has positions.
    """
    folder = find(path, allow_pickle)
    settings = _of_encoder(folder) if from_encoder else _read_settings(folder)
    place, raw = settings.transformer, read_config(settings.transformer)
    own_tokenizer, _, meant = load_tokenizer(place, tokenizer, settings.own)
    unread = ("linear.weight", "pooler", "position_ids") if not settings.layers else None
    network: Any = load_network(place, encoder_class(raw), allow_pickle, ("pooler",), unread=unread)
    shapes, dense = ([], nn.Sequential()) if from_encoder else _layers(folder, settings, allow_pickle)
    marks = set(own_tokenizer.encode("").ids) if from_encoder else set()
    markers = [_marker(own_tokenizer, mark, settings.known_marks) for mark in settings.marks]
    length = length_limit(network.config, settings.document_length or meant, max_length)
    filled = settings.filled and (query_length or settings.filled)
    longest = query_length or settings.query_length or meant
    policy = {
        "max_length": length,
        "query_length": length_limit(network.config, longest, query_length),
        "query_filled": filled,
        "attend": settings.attend,
        "filler": _filler(own_tokenizer, folder, settings.filler) if filled else None,
        "markers": [marker.ids for marker in markers],
        "query_prompt": markers[0].rest,
        "passage_prompt": markers[1].rest,
        "skipped": sorted(_ids_of(own_tokenizer, settings.skipped) | marks),
        "skipped_sides": list(settings.skipped_sides),
        "similarity": settings.similarity,
        "normalised": settings.normalised,
        "dense": shapes,
    }
    return LateInteraction(network, dense, own_tokenizer, policy, config=raw)


def _layers(
    folder: Path, settings: _Settings, allow_pickle: bool
) -> tuple[list[dict[str, Any]], nn.Sequential]:
    """Read the layers behind the encoder; Stanford's one stands beside its weights."""
    if settings.layers:
        return read_layers(settings.layers, "token_embeddings", allow_pickle=allow_pickle)
    weight = read_tensor(folder, "linear.weight", allow_pickle)
    if weight is None:
        raise BadModel(
            f'"{folder}" holds no tensor "linear.weight", which every ColBERT of Stanford\'s code has'
        )
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    with torch.no_grad():
        layer.weight.copy_(weight)
    shape = {"in": weight.shape[1], "out": weight.shape[0], "bias": False, "activation": "identity"}
    return [shape], nn.Sequential(layer)


def _read_settings(folder: Path) -> _Settings:
    """Read a folder of any of the three forms; BadModel for another, or a module not computed here."""
    require(folder, "colbert")
    if (folder / "modules.json").is_file():
        return _of_modules(folder)
    path = folder / "artifact.metadata"
    said: Mapping[str, Any] = read_json(path) if path.is_file() else {}
    if said.get("similarity", "cosine") != "cosine":
        raise BadModel(f'"{folder}" compares by {said["similarity"]!r}; read here: cosine')
    return _Settings(
        folder,
        marks=(
            (said.get("query_token_id") or "[unused0]", ""),
            (said.get("doc_token_id") or "[unused1]", ""),
        ),
        known_marks=True,
        query_length=int(said.get("query_maxlen") or _USUAL_QUERY),
        filled=int(said.get("query_maxlen") or _USUAL_QUERY),
        attend=bool(said.get("attend_to_mask_tokens")),
        document_length=said.get("doc_maxlen"),
        skipped=_PUNCTUATION if said.get("mask_punctuation", True) else (),
    )


def _of_encoder(folder: Path) -> _Settings:
    """Read a bi-encoder's folder; BadModel where its vectors are no means of those of tokens."""
    require(folder, "biencoder")
    said = read_settings(folder)
    if said is None or said.pooling != "mean" or said.layers or said.static or said.query or said.truncated:
        raise BadModel(
            f'"{folder}" makes vectors of texts otherwise than as the mean of its tokens\' vectors, so those '
            "of tokens do not compare texts; from_encoder is for encoders like all-MiniLM"
        )
    marks = ("", said.query_prompt), ("", said.passage_prompt)
    return _Settings(
        said.transformer,
        marks=marks,
        query_length=said.max_length,
        document_length=said.max_length,
        skipped_sides=("query",),
        similarity="meanmaxsim",
        own=said.own,
    )


def _of_modules(folder: Path) -> _Settings:
    """Read a folder of PyLate, or of sentence-transformers 6."""
    settings = library_settings(folder)
    layers: list[tuple[str, Path]] = []
    transformer, mask, normalised = folder, {}, False
    modules = modules_of(folder)
    if modules != modules_of(folder, "query"):
        raise BadModel(f'"{folder}" reads queries by other modules than passages; read here is one chain')
    for kind, source, place in modules:
        if kind == "Transformer":
            transformer = place
        elif kind == "MultiVectorMask":
            mask = read_json(place / "config.json")
        elif kind == "Normalize":
            normalised = True
        elif kind in {"Dense", "LayerNorm"}:
            layers.append((kind, place))
        else:
            raise BadModel(
                f'"{folder}" has a module "{source}"; read here are Transformer, Dense, LayerNorm, '
                "MultiVectorMask and Normalize"
            )
    if mask.get("keep_only_token_ids"):
        raise BadModel(f'"{folder}" counts the tokens of pictures only; texts are ranked here')
    own = read_transformer(transformer)
    is_pylate = settings.get("model_type") == "ColBERT"
    expansion = _expansion(settings if is_pylate or "query_expansion" not in own else own)
    skipped = settings.get("skiplist_words") if is_pylate else mask.get("skiplist_words")
    lengths = [
        own.get(f"{side}_length") or settings.get(f"{side}_length") or own.get("max_seq_length")
        for side in ("query", "document")
    ]
    filled = int(expansion.get("length") or _USUAL_QUERY) if expansion else 0
    is_fixed = expansion is not None and expansion.get("strategy", "fixed") == "fixed"
    longest = filled if is_fixed else max(lengths[0] or 0, filled) if lengths[0] else None
    return _Settings(
        transformer,
        tuple(layers),
        (_mark(settings, "query"), _mark(settings, "document")),
        known_marks=is_pylate,
        query_length=longest,
        filled=filled,
        attend=bool(expansion and expansion.get("attend")),
        filler=expansion.get("token") if expansion else None,
        document_length=lengths[1],
        skipped=_PUNCTUATION if skipped is None and is_pylate else skipped or (),
        skipped_sides=mask.get("skiplist_tasks") or ("document",),
        similarity=_similarity(folder, settings),
        own=own,
        normalised=normalised or is_pylate,
    )


def _mark(said: Mapping[str, Any], side: str) -> _Mark:
    """Return what is put before a side's texts; the prompt may begin with PyLate's prefix."""
    prefix: str = said.get(f"{side}_prefix") or ""
    prompt: str = (said.get("prompts") or {}).get(side) or ""
    return prefix, prompt.removeprefix(prefix)


def _similarity(folder: Path, said: Mapping[str, Any]) -> str:
    """Return how tokens' best matches are joined: "maxsim", in the folder's own letters, or "meanmaxsim"."""
    named = str(said.get("similarity_fn_name") or "maxsim")
    if named.lower() not in {"maxsim", "meanmaxsim"}:
        raise BadModel(f'"{folder}" compares by {named!r}; read here are maxsim and meanmaxsim')
    return named if named.lower() == "maxsim" else "meanmaxsim"  # MaxSim, as PyLate and older bundles have it


def _expansion(said: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return how queries are filled up: {"length", "attend", "strategy", "token"}; None: they are not."""
    if "query_expansion" in said or said.get("do_query_expansion") is False:
        return said.get("query_expansion")
    marks = ("query_length", "attend_to_expansion_tokens", "query_prefix", "do_query_expansion")
    if not any(name in said for name in marks):
        return None
    return {"length": said.get("query_length"), "attend": said.get("attend_to_expansion_tokens")}


class _Marker(NamedTuple):
    """Marker put before a text: tokens, and the rest, which is read with the text."""

    ids: list[int]
    rest: str


def _marker(tokenizer: Tokenizer, mark: _Mark, known: bool) -> _Marker:
    """Part what is put before a text into its first token and the rest.

    Args:
        known: Whether it is a token of the vocabulary even if that does not call it special.
    """
    own = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    text = "".join(mark)
    first = text.split(" ", 1)[0]
    for candidate in (mark[0], text, f"{first} ", first):
        number = tokenizer.token_to_id(candidate)
        if text.startswith(candidate) and number is not None and (known or candidate in own):
            return _Marker([number], text.removeprefix(candidate))
    return _Marker([], text)


def _filler(tokenizer: Tokenizer, folder: Path, named: str | None) -> int:
    """Return the token that fills queries up."""
    for name in (named, "[MASK]", "<mask>", "<|mask|>"):
        if name and (number := tokenizer.token_to_id(name)) is not None:
            return number
    raise BadModel(f'"{folder}" fills queries up with masks, but its vocabulary has none of [MASK], <mask>')


def _ids_of(tokenizer: Tokenizer, words: Sequence[str]) -> set[int]:
    """Return the ids of words that are single tokens; others stand for nothing."""
    unknown = getattr(tokenizer.model, "unk_token", None)
    numbers = {tokenizer.token_to_id(word) for word in words if word != unknown}
    return {number for number in numbers if number is not None}
