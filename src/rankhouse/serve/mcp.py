"""The service as tools of an assistant: search, read, explain; the Model Context Protocol on stdio.

Models are opened while the assistant already talks: tools wait for them. What documents say is handed on as
it stands; it is material for the assistant, never an instruction of this service.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import anyio
import msgspec
from anyio import to_thread
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from msgspec import Meta, Struct

import rankhouse
from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.explanation.show import to_markdown
from rankhouse.serve.engine.deadline import Deadline
from rankhouse.serve.search.answer import SearchRequest, search
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.why import ExplainRequest, explain

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

PATIENCE: Final = 60.0
"""Seconds that a tool takes at most; a search is answered by its first stage then."""
LENGTH: Final = 20_000
"""Characters of a document that are returned at once."""
_MOST_HITS: Final = 50

Text = Annotated[str, Meta(min_length=1, max_length=10_000)]


class SearchArguments(Struct):
    """Search the collection: the best documents for a question, each with the stretch that answers best.

    Attributes:
        query: The question, in words.
        k: How many documents.
        system: What ranks them; the default is the best there is.
        index: What is searched; the default is the first index.
    """

    query: Annotated[Text, Meta(description="The question, in words.")]
    k: Annotated[int, Meta(ge=1, le=_MOST_HITS, description="How many documents; 10 if not said.")] = 10
    system: Annotated[str, Meta(description="What ranks; the best there is if not said.")] | None = None
    index: Annotated[str, Meta(description="What is searched; the first index if not said.")] | None = None


class ReadArguments(Struct):
    """Read a document that a search found, by its id; with a question, its best passage is told too.

    Attributes:
        document: Its id.
        index: Where it is.
        query: A question.
        start: The first character of its text that is returned.
    """

    document: Annotated[Text, Meta(description="Its id, as a search returns it.")]
    index: Annotated[str, Meta(description="Where it is; the first index if not said.")] | None = None
    query: Annotated[str, Meta(description="A question whose best passage is wanted.")] | None = None
    start: Annotated[int, Meta(ge=0, description="Go on from this character of a long text.")] = 0


class ExplainArguments(Struct):
    """Say why a document scores what it scores for a question, or why it stands above or below another.

    Attributes:
        query: The question.
        document: The document.
        against: The document that it is held against.
        system: What ranks.
        index: What is searched.
    """

    query: Annotated[Text, Meta(description="The question that was searched for.")]
    document: Annotated[Text, Meta(description="The document's id.")]
    against: Annotated[str, Meta(description="Id of a document to hold it against.")] | None = None
    system: Annotated[str, Meta(description="What ranks; as for search.")] | None = None
    index: Annotated[str, Meta(description="What is searched; as for search.")] | None = None


class ToolAnswer(Struct):
    """What a tool returns: text to be read, and the same as data."""

    text: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Tool:
    """A tool.

    Attributes:
        arguments: The structure that describes it and its arguments.
        call: Does it; called in a thread.
    """

    arguments: type[Struct]
    call: Callable[[Service, Any], ToolAnswer]

    def described(self, name: str, choices: str) -> types.Tool:
        """Return the tool as an assistant reads it."""
        _, components = msgspec.json.schema_components([self.arguments])
        schema = components[self.arguments.__name__]
        summary = (self.arguments.__doc__ or "").partition("\n")[0]
        return types.Tool(
            name=name,
            description=f"{summary} {choices}",
            input_schema={key: value for key, value in schema.items() if key != "description"},
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        )


def _search(service: Service, asked: SearchArguments) -> ToolAnswer:
    request = SearchRequest(asked.query, asked.system or "", asked.index or "", asked.k)
    told = search(service, request, Deadline.after(PATIENCE))
    lines = [f"{len(told.hits)} of {told.found:,} documents of {told.index}, ranked by {told.system}"]
    lines += [note for note in (told.degraded, *told.warnings) if note]
    for hit in told.hits:
        title = f" {hit.title}" if hit.title else ""
        lines += [f"{hit.rank}. [{hit.doc_id}]{title} (score {hit.score:.4f})", f"   {hit.snippet}"]
    hits = [
        {"rank": h.rank, "id": h.doc_id, "score": h.score, "title": h.title, "snippet": h.snippet}
        for h in told.hits
    ]
    data = {"index": told.index, "system": told.system, "hits": hits, "degraded": told.degraded}
    return ToolAnswer("\n".join(lines), data)


def _read(service: Service, asked: ReadArguments) -> ToolAnswer:
    view, document = read_document(service, asked.index or "", asked.document)
    end = min(len(document.text), asked.start + LENGTH)
    text, notes = document.text[asked.start : end], []
    if asked.query:
        shaded = passages_with_scores(
            service, view.name, document.id, asked.query, deadline=Deadline.after(PATIENCE)
        )
        if shaded.best is not None:
            passage = document.text[shaded.best.start : shaded.best.end].strip()
            notes.append(f"Best passage (characters {shaded.best.start} to {shaded.best.end}): {passage}")
    if end < len(document.text):
        notes.append(f"Characters {asked.start} to {end} of {len(document.text):,}; go on with start={end}.")
    head = f"[{document.id}] {document.title}".strip()
    data = {
        "index": view.name, "id": document.id, "title": document.title, "text": text,
        "start": asked.start, "end": end, "length": len(document.text),
    }  # fmt: skip
    return ToolAnswer("\n\n".join([head, *notes, text]), data)


def _explain(service: Service, asked: ExplainArguments) -> ToolAnswer:
    request = ExplainRequest(
        asked.query, asked.document, asked.system or "", asked.index or "", asked.against or ""
    )
    told = explain(service, request, Deadline.after(PATIENCE))
    return ToolAnswer(to_markdown(told), {"sentence": told.sentence()})


TOOLS: Final[Mapping[str, Tool]] = {
    "search": Tool(SearchArguments, _search),
    "read_document": Tool(ReadArguments, _read),
    "explain": Tool(ExplainArguments, _explain),
}


def make_server(service: Service, ready: Callable[[], None]) -> Server[Any]:
    """Return the server of a service's tools.

    Args:
        ready: Waits until models are open; raises what keeps them from it.
    """

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        del context, params
        choices = _choices(service)
        return types.ListToolsResult(tools=[tool.described(name, choices) for name, tool in TOOLS.items()])

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        del context
        work = partial(_called, service, ready, params.name, params.arguments or {})
        try:
            told = await to_thread.run_sync(work, abandon_on_cancel=True)
        except RankhouseError as error:
            fault = types.TextContent(type="text", text=str(error))
            return types.CallToolResult(content=[fault], is_error=True)
        content = types.TextContent(type="text", text=told.text)
        data = msgspec.to_builtins(told.data)
        return types.CallToolResult(content=[content], structured_content=data)

    return Server(
        "rankhouse",
        version=rankhouse.__version__,
        instructions="Search a collection of documents, read them, and ask why they are ranked as they are.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _choices(service: Service) -> str:
    """Say which indexes and systems there are."""
    catalogue = service.catalogue
    told = [f"{name} ({', '.join(catalogue.systems(name))})" for name in catalogue.indexes]
    return f"Indexes, and the systems of each: {'; '.join(told) or 'none'}."


def _called(
    service: Service, ready: Callable[[], None], name: str, arguments: Mapping[str, Any]
) -> ToolAnswer:
    tool = TOOLS.get(name)
    if tool is None:
        raise WrongUse(f'there is no tool "{name[:80]}"; there are: {", ".join(TOOLS)}')
    given = {key: value for key, value in arguments.items() if value is not None}
    try:
        asked = msgspec.convert(given, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        raise WrongUse(f"{name}: {error}") from None
    ready()
    return tool.call(service, asked)


def run(service: Service) -> None:
    """Talk to an assistant on standard input and output until it hangs up; the service is closed then.

    Args:
        service: What is served; it is warmed here, while the assistant already talks.
    """
    warmed, faults = threading.Event(), list[RankhouseError]()

    def warm() -> None:
        try:
            service.warm()
        except RankhouseError as error:
            faults.append(error)
        except Exception as error:  # noqa: BLE001 - whoever calls a tool is told
            faults.append(RankhouseError(f"the service cannot open its models: {error}"))
        finally:
            warmed.set()

    def ready() -> None:
        warmed.wait()
        if faults:
            raise faults[0]

    async def talk() -> None:
        server = make_server(service, ready)
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    threading.Thread(target=warm, name="warm", daemon=True).start()
    try:
        anyio.run(talk)
    finally:
        warmed.wait()  # who closes while models are opened would leave them half open
        service.close()
