"""The service as tools of an assistant: search, read, explain; the Model Context Protocol on stdio.

Models are opened while the assistant already talks: tools wait for them. What documents say is handed on as
it stands; it is material for the assistant, never an instruction of this service.
"""

from __future__ import annotations

import gc
import json
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache, partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple, get_type_hints

import anyio
import msgspec
from anyio import to_thread
from anyio.streams.memory import MemoryObjectSendStream
from mcp import types
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from msgspec import Meta, Struct
from pydantic import ValidationError

import rankhouse
from rankhouse.core.errors import RankhouseError, WrongUse, did_you_mean
from rankhouse.explanation.show import to_markdown
from rankhouse.serve.contracts.requests import converted
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.search.answer import search as search_collection
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.documents import passages_with_scores
from rankhouse.serve.search.documents import read_document as document_of
from rankhouse.serve.search.shapes import ExplainBody, SearchBody
from rankhouse.serve.search.why import explain as explain_ranking

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream

PATIENCE: Final = 60.0
"""Seconds that a tool takes at most; a search is answered by its first stage then."""
LENGTH: Final = 20_000
"""Characters of a document that are returned at once."""
_MOST_HITS: Final = 50


class ToolAnswer(NamedTuple):
    """Result of a tool: text to be read, and the same as data."""

    text: str
    data: dict[str, Any]


def search(
    catalogue: Catalogue,
    query: Annotated[str, Meta(min_length=1, max_length=10_000, description="The question, in words.")],
    k: Annotated[int, Meta(ge=1, le=_MOST_HITS, description="How many documents; 10 if not said.")] = 10,
    system: Annotated[str, Meta(description="What ranks; the best there is if not said.")] | None = None,
    index: Annotated[str, Meta(description="What is searched; the first index if not said.")] | None = None,
) -> ToolAnswer:
    """Search the collection: the best documents for a question, each with the passage that answers best."""
    asked = SearchBody(query=query, system=system, index=index, k=k)
    answer = search_collection(catalogue, asked, Deadline.after(PATIENCE))
    lines = [f"{len(answer.hits)} of {answer.found:,} documents of {answer.index}, ranked by {answer.system}"]
    lines += [note for note in (answer.degraded, *answer.warnings) if note]
    for hit in answer.hits:
        title = f" {hit.title}" if hit.title else ""
        lines += [f"{hit.rank}. [{hit.doc_id}]{title} (score {hit.score:.4f})", f"   {hit.snippet}"]
        lines += [f"   also in {', '.join(f'[{one}]' for one in hit.copies)}"] * bool(hit.copies)
    hits = [
        {"rank": h.rank, "id": h.doc_id, "score": h.score, "title": h.title, "snippet": h.snippet}
        | ({"copies": list(h.copies)} if h.copies else {})
        for h in answer.hits
    ]
    data = {"index": answer.index, "system": answer.system, "hits": hits, "degraded": answer.degraded}
    return ToolAnswer("\n".join(lines), data)


def read_document(
    catalogue: Catalogue,
    document: Annotated[
        str, Meta(min_length=1, max_length=10_000, description="Its id, as a search returns it.")
    ],
    index: Annotated[str, Meta(description="Where it is; the first index if not said.")] | None = None,
    query: Annotated[str, Meta(description="A question whose best passage is wanted.")] | None = None,
    start: Annotated[int, Meta(ge=0, description="Go on from this character of a long text.")] = 0,
) -> ToolAnswer:
    """Read a document that a search found, by its id; with a question, its best passage too."""
    view, found = document_of(catalogue, index, document)
    if start and start >= len(found.text):
        raise WrongUse(f"start={start}: the text of {found.id} has {len(found.text):,} characters")
    end = min(len(found.text), start + LENGTH)
    text, notes = found.text[start:end], []
    if query:
        deadline = Deadline.after(PATIENCE)
        best = passages_with_scores(catalogue, view, found, query, deadline=deadline).best
        if best is not None:
            passage = found.text[best.start : best.end].strip()
            notes.append(f"Best passage (characters {best.start} to {best.end}): {passage}")
    if end < len(found.text):
        notes.append(f"Characters {start} to {end} of {len(found.text):,}; go on with start={end}.")
    data = {
        "index": view.name, "id": found.id, "title": found.title, "text": text,
        "start": start, "end": end, "length": len(found.text),
    }  # fmt: skip
    return ToolAnswer("\n\n".join([f"[{found.id}] {found.title}".strip(), *notes, text]), data)


def explain(
    catalogue: Catalogue,
    query: Annotated[
        str, Meta(min_length=1, max_length=10_000, description="The question that was searched for.")
    ],
    document: Annotated[str, Meta(min_length=1, max_length=10_000, description="The document's id.")],
    against: Annotated[str, Meta(description="Id of a document to compare it with.")] | None = None,
    system: Annotated[str, Meta(description="What ranks; as for search.")] | None = None,
    index: Annotated[str, Meta(description="What is searched; as for search.")] | None = None,
) -> ToolAnswer:
    """Say why a document scores what it scores for a question, or why it stands above or below another."""
    asked = ExplainBody(query=query, document=document, system=system, index=index, against=against)
    answer = explain_ranking(catalogue, asked, Deadline.after(PATIENCE))
    return ToolAnswer(to_markdown(answer), {"sentence": answer.sentence()})


TOOLS: Final[Mapping[str, Callable[..., ToolAnswer]]] = {
    tool.__name__: tool for tool in (search, read_document, explain)
}


@cache
def arguments_of(tool: Callable[..., ToolAnswer]) -> type[Struct]:
    """Return the structure of a tool's arguments: its signature, without the service."""
    hints = get_type_hints(tool, include_extras=True)
    _, *parameters = signature(tool).parameters.values()
    fields: list[Any] = [
        (one.name, hints[one.name]) + (() if one.default is Parameter.empty else (one.default,))
        for one in parameters
    ]
    return msgspec.defstruct(tool.__name__, fields, forbid_unknown_fields=True)


def make_server(catalogue: Catalogue, ready: Callable[[], None]) -> Server[Any]:
    """Return the server of a service's tools."""

    async def list_tools(context: object, params: object) -> types.ListToolsResult:
        del context, params
        systems = (f"{name} ({', '.join(catalogue.systems(name))})" for name in catalogue.indexes)
        choices = f"Indexes, and the systems of each: {'; '.join(systems) or 'none'}."
        read_only = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        tools = []
        for name, tool in TOOLS.items():
            _, components = msgspec.json.schema_components([arguments_of(tool)])
            words = f"{tool.__doc__} {choices}"
            schema = components[name]
            tools.append(types.Tool(name=name, description=words, input_schema=schema, annotations=read_only))
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: object, params: types.CallToolRequestParams) -> types.CallToolResult:
        del context
        work = partial(_called, catalogue, ready, name=params.name, arguments=params.arguments or {})
        try:
            answer = await to_thread.run_sync(work, abandon_on_cancel=True)
        except RankhouseError as error:
            fault = types.TextContent(type="text", text=str(error))
            return types.CallToolResult(content=[fault], is_error=True)
        content = types.TextContent(type="text", text=answer.text)
        return types.CallToolResult(content=[content], structured_content=answer.data)

    return Server(
        "rankhouse",
        version=rankhouse.__version__,
        instructions="Search a collection of documents, read them, and ask why they are ranked as they are.",
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _called(
    catalogue: Catalogue, ready: Callable[[], None], name: str, arguments: Mapping[str, Any]
) -> ToolAnswer:
    tool = TOOLS.get(name)
    if tool is None:
        raise WrongUse(f'there is no tool "{name[:80]}"; there are: {", ".join(TOOLS)}')
    given = {key: value for key, value in arguments.items() if value is not None}
    known = arguments_of(tool).__struct_fields__
    for key in (key for key in arguments if key not in known):
        near = did_you_mean(key, known)
        raise WrongUse(f'{name}: there is no argument "{key[:80]}"{near}; it takes {", ".join(known)}')
    asked = converted(given, arguments_of(tool), f"the schema of {name}")
    ready()
    return tool(catalogue, **msgspec.structs.asdict(asked))


async def _pass_on(
    incoming: ReadStream[SessionMessage | Exception],
    sending: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    """Pass messages on; a line that could not be read is read once more, without its half characters."""
    async with incoming, sending:
        async for message in incoming:
            await sending.send(_read_again(message) if isinstance(message, ValidationError) else message)


def _read_again(fault: ValidationError) -> SessionMessage | Exception:
    """Read a line with the halves of cut emoji, which JavaScript writes and nobody else reads, as "?"."""
    try:
        given = json.loads(fault.errors()[0]["input"])
        sound = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(sound, by_name=False))
    except (ValueError, TypeError, RecursionError):
        return fault


def _unless_a_reader_left(fault: sys.UnraisableHookArgs) -> None:
    """Say what fails while an object is given up, but for the library's pipe whose reader has left."""
    if not isinstance(fault.exc_value, BrokenPipeError):
        sys.__unraisablehook__(fault)


def run(catalogue: Catalogue, open_models: Callable[[], None]) -> None:
    """Talk to an assistant on standard input and output until it hangs up; a thread opens the models."""
    warmed, faults = threading.Event(), list[RankhouseError]()

    def warm() -> None:
        try:
            open_models()
        except RankhouseError as error:
            faults.append(error)
        except Exception as error:  # noqa: BLE001 - the next tool call tells it
            faults.append(RankhouseError(f"the service cannot open its models: {error}"))
        finally:
            warmed.set()

    def ready() -> None:
        warmed.wait()
        if faults:
            raise faults[0]

    async def talk() -> None:
        server = make_server(catalogue, ready)
        sending, legible = anyio.create_memory_object_stream[SessionMessage | Exception]()
        async with stdio_server() as (incoming, outgoing), anyio.create_task_group() as tasks:
            tasks.start_soon(_pass_on, incoming, sending)
            await server.run(legible, outgoing, server.create_initialization_options())

    threading.Thread(target=warm, name="warm", daemon=True).start()
    sys.unraisablehook = _unless_a_reader_left
    try:
        anyio.run(talk)
    except* BrokenPipeError:  # the assistant is gone, and its last answers with it
        pass
    finally:
        warmed.wait()  # a service that is closed while models open would leave them half open
    gc.collect()  # the pipe goes while the hook stands, which the interpreter takes down before its own end
