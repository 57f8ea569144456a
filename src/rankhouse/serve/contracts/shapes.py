"""Bodies and answers of the contracts that rerankers' and encoders' clients speak."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

Texts = str | Annotated[list[str], Meta(min_length=1)]
"""A text or several."""
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Direction = Literal["left", "right", "Left", "Right"]
_TEXT = {"properties": {"text": {"type": "string"}}, "required": ["text"]}
DocumentObject = Annotated[dict[str, Any], Meta(extra_json_schema=_TEXT)]
_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
Pairs = Annotated[
    Any, Meta(extra_json_schema={"anyOf": [_PAIR, {"type": "array", "items": _PAIR, "minItems": 1}]})
]


class SpanOptions(Struct):
    """Choice of the passages of a document that are returned.

    Attributes:
        mode: "enabled" tells them.
        threshold: Least relevance of a passage.
        max_spans: How many at most.
    """

    mode: str | None = "enabled"
    threshold: float | None = None
    max_spans: Count | None = None


class RerankBody(Struct):
    """Documents to be ranked for a query; all but ``query`` and ``documents`` may be left out or null.

    Attributes:
        query: The question.
        documents: Texts, or objects whose ``rank_fields`` are read, or "text" where they have none of them.
        model: Name of a ranker of this service.
        top_n: How many of the best are returned; 0 for all.
        top_k: The same.
        return_documents: Whether the texts are sent back.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        rank_fields: Fields of documents that are read.
        max_tokens_per_doc: Tokens of a document that are read; all of them if not said.
        max_chunks_per_doc: Passages of a document that are read; all of them if not said.
        relevant_spans: Whether the best passages of a document are returned.
        split: How documents are cut, in rankhouse's notation; the ranker's own if not said.
        pool: How passages' scores become a document's; the ranker's own if not said.
    """

    query: str
    documents: Annotated[list[str | DocumentObject], Meta(min_length=1)]
    model: str | None = None
    top_n: Count | None = None
    top_k: Count | None = None
    return_documents: bool | None = None
    raw_scores: bool | None = None
    rank_fields: list[str] | None = None
    max_tokens_per_doc: Positive | None = None
    max_chunks_per_doc: Positive | None = None
    relevant_spans: SpanOptions | None = None
    split: str | None = None
    pool: str | None = None


class TextsBody(Struct):
    """Texts to be ranked for a query, as text-embeddings-inference reads them.

    Attributes:
        query: The question.
        texts: The texts to rank.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        return_text: Whether the texts are sent back.
        truncate: Not needed: long texts are cut into passages.
        truncation_direction: Not needed.
    """

    query: str
    texts: Annotated[list[str], Meta(min_length=1)]
    model: str | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None


class RelevantSpan(Struct):
    """A passage of a document as given: code points, half open."""

    start: int
    end: int
    score: float


class RerankResult(Struct, omit_defaults=True):
    """One document of the ranking."""

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None
    relevant_spans: list[RelevantSpan] | None = None


class Usage(Struct):
    """Tokens computed."""

    prompt_tokens: int
    total_tokens: int


class ApiVersion(Struct):
    """Of Cohere's contract."""

    version: str


class BilledUnits(Struct):
    """Cohere's unit: a query with up to 100 documents."""

    search_units: int


class TokenCounts(Struct):
    """Tokens read and written."""

    input_tokens: int
    output_tokens: int


class RerankMeta(Struct):
    """Remarks on the answer: ``warnings`` say what was shortened or could not be read."""

    api_version: ApiVersion
    billed_units: BilledUnits
    tokens: TokenCounts
    warnings: list[str]


class RerankAnswer(Struct):
    """A ranking; ``data`` is the same list as ``results``."""

    id: str
    object: str
    model: str
    results: list[RerankResult]
    data: list[RerankResult]
    usage: Usage
    meta: RerankMeta


class TextScore(Struct, omit_defaults=True):
    """One text of the ranking."""

    index: int
    score: float
    text: str | None = None


class ScoreBody(Struct, kw_only=True):
    """Pairs to be scored: one text against one or many, or as many against as many.

    Attributes:
        text_1: The query, or one for each text.
        text_2: The texts to score.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
    """

    text_1: Texts
    text_2: Texts
    model: str | None = None
    raw_scores: bool | None = None


class ScoreQueriesBody(ScoreBody, kw_only=True):
    """The same under other names: the pairs of ``queries`` and ``documents``."""

    text_1: Texts = field(name="queries")
    text_2: Texts = field(name="documents")


class PairScore(Struct):
    """The score of one pair."""

    index: int
    score: float
    object: str = "score"


class ScoreAnswer(Struct):
    """Scores in the order of the pairs."""

    id: str
    created: int
    model: str
    data: list[PairScore]
    usage: Usage
    warnings: list[str]
    object: str = "list"


class EmbeddingBody(Struct):
    """Texts whose vectors are wanted.

    Attributes:
        input: A text or several; token numbers are another model's, so they are not accepted.
        model: Name of an encoder of this service.
        encoding_format: "float", or "base64" for little-endian float32.
        dimensions: The first so many numbers of each vector, given length 1.
        input_type: "query" or "document", for encoders that read them differently.
        truncate: False refuses texts that do not fit into the model.
    """

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    input_type: str | None = None
    truncate: bool | None = None


class Embedding(Struct):
    """The vector of one text."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingAnswer(Struct):
    """Vectors in the order of the texts."""

    data: list[Embedding]
    model: str
    usage: Usage
    object: str = "list"


class ModelCard(Struct):
    """A model of this service."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "rankhouse"


class ModelList(Struct):
    """The models of this service."""

    data: list[ModelCard]
    object: str = "list"


class EmbedBody(Struct):
    """Texts whose vectors are wanted.

    Attributes:
        inputs: A text or several.
        model: Name of an encoder of this service.
        normalize: Whether vectors are given length 1; true if not said.
        truncate: False refuses texts that do not fit into the model.
        truncation_direction: Texts are cut at the end.
        prompt_name: "query" for queries, for encoders that read them differently.
        dimensions: The first so many numbers of each vector, given length 1.
    """

    inputs: Texts
    model: str | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class PredictBody(Struct):
    """Pairs of a query and a text to be scored.

    Attributes:
        inputs: A pair, or several.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        truncate: Not needed: long texts are cut into passages.
    """

    inputs: Pairs
    model: str | None = None
    raw_scores: bool | None = None
    truncate: bool | None = None


class Prediction(Struct):
    """Relevance of a text for a query."""

    score: float
    label: str = "relevant"


class SimilarityInputs(Struct):
    """A sentence, and those it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Meta(min_length=1)]


class SimilarityBody(Struct):
    """Sentences to be compared.

    Attributes:
        inputs: The texts to compare.
        model: Name of an encoder of this service.
        parameters: ``prompt_name`` and ``truncate``, as for vectors.
    """

    inputs: SimilarityInputs
    model: str | None = None
    parameters: dict[str, Any] | None = None


class TokenizeBody(Struct):
    """Texts whose tokens are wanted.

    Attributes:
        inputs: A text or several.
        model: Name of a ranker of this service.
        add_special_tokens: Whether the model's own tokens stand around them; true if not said.
    """

    inputs: Texts
    model: str | None = None
    add_special_tokens: bool | None = None


class TokenPlace(Struct):
    """A token; ``start`` and ``stop`` are code points of the text, null for the model's own tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class ModelInfo(Struct):
    """Description of a model."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_batch_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
