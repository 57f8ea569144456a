"""The service as an assistant's tools: the official client talks to a process of its own, on stdio."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters

from rankhouse.api.index import Index
from rankhouse.serve.mcp import LENGTH

LONG = " ".join(f"Sentence {number} tells of tides." for number in range(2_000))
DOCUMENTS = [
    {"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."},
    {"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."},
    {"id": "d3", "text": "A lock lifts ships between two levels of water."},
    {"id": "long", "text": LONG},
]


@pytest.fixture
def index(tmp_path):
    """An index of a few documents."""
    Index.build(DOCUMENTS, tmp_path / "harbour", workers=1)
    return tmp_path / "harbour"


def talk(questions, *arguments, verb="serve"):
    """Start the service as an assistant does, and ask."""

    async def talked():
        command = StdioServerParameters(
            command=sys.executable,
            args=["-m", "rankhouse", verb, *map(str, arguments), "--mcp"],
            env=dict(os.environ),
        )
        with anyio.fail_after(600):
            async with Client(command) as client:
                return await questions(client)

    with ThreadPoolExecutor(1) as apart:  # a browser of other tests may hold this thread's event loop
        return apart.submit(anyio.run, talked).result()


def text(result):
    """Output of a tool."""
    (content,) = result.content
    return content.text


def test_an_assistant_searches_reads_and_asks_why(index):
    async def questions(client):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {"search", "read_document", "explain"}
        assert all(tool.annotations.read_only_hint for tool in tools.values())
        assert tools["search"].input_schema["required"] == ["query"]
        assert "harbour (bm25, bm25+rm3, ql)" in tools["search"].description

        found = await client.call_tool("search", {"query": "who steers ships?", "k": 2})
        assert not found.is_error
        hits = found.structured_content["hits"]
        assert [hit["id"] for hit in hits] == ["d1", "d3"]
        assert text(found).startswith("2 of 2 documents of harbour, ranked by bm25\n1. [d1] Pilots (score ")

        read = await client.call_tool("read_document", {"document": "d1", "query": "ships"})
        assert DOCUMENTS[0]["text"] in text(read)
        assert "Best passage" in text(read)

        why = await client.call_tool(
            "explain", {"query": "who steers ships?", "document": "d1", "against": "d3"}
        )
        assert "d1" in text(why)
        assert text(why).count(" above ") == 1, "the sentence is said once"
        assert "steer" in text(why)

        first = await client.call_tool("read_document", {"document": "long"})
        assert f"go on with start={LENGTH}" in text(first)
        rest = await client.call_tool("read_document", {"document": "long", "start": LENGTH})
        both = first.structured_content["text"] + rest.structured_content["text"]
        assert both == LONG[: 2 * LENGTH]

    talk(questions, f"harbour={index}")


@pytest.mark.slow
def test_what_is_wrong_is_told_to_the_assistant_and_the_talk_goes_on(index):
    async def questions(client):
        for name, arguments, said in [
            ("search", {}, "query: is missing; the schema of search says what it is"),
            ("search", {"query": "ships", "k": 0}, "k: must be at least 1"),
            ("search", {"query": "ships", "k": 1000}, "k: must be at most 50"),
            ("search", {"query": "ships", "system": "bm52"}, 'did you mean "bm25"'),
            ("search", {"query": "ships", "sytem": "ql"}, 'no argument "sytem" (did you mean "system"?)'),
            ("search", {"query": "  "}, "query is empty"),
            ("read_document", {"document": "d0"}, 'no document "d0"'),
            ("read_document", {"document": "d3", "start": 10**30}, "the text of d3 has 47 characters"),
            ("explain", {"query": "ships", "document": "d1", "against": "d1"}, "compared with itself"),
            ("shutdown", {}, "there are: search, read_document, explain"),
        ]:
            result = await client.call_tool(name, arguments)
            assert result.is_error
            assert said in text(result)
        found = await client.call_tool("search", {"query": "ships", "k": "1", "system": None})
        assert len(found.structured_content["hits"]) == 1

    talk(questions, index)


@pytest.mark.slow
def test_a_ranker_that_cannot_be_opened_is_told_by_the_tools(index, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "broken").mkdir()

    async def questions(client):
        assert len((await client.list_tools()).tools) == 3
        result = await client.call_tool("search", {"query": "ships"})
        assert result.is_error
        assert "broken" in text(result)

    talk(questions, index, "--ranker", f"mine={tmp_path / 'broken'}")


@pytest.mark.slow
def test_nothing_but_the_protocol_is_written_to_standard_output(index):
    """A client of another make: plain lines of JSON; the program ends when its input does."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rankhouse", "serve", str(index), "--mcp"], timeout=300, check=False,
        input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert {answer["id"] for answer in answers} >= {1}
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)


@pytest.mark.slow
def test_half_a_character_is_answered(index):
    """JavaScript cuts texts between the halves of an emoji, and writes the half that is left."""
    call = {"name": "search", "arguments": {"query": "ships \ud83d"}}
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "rankhouse", "serve", str(index), "--mcp"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdin.write("".join(json.dumps(line) + "\n" for line in lines) + "{broken\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
    assert answers[1]["result"]["structuredContent"]["hits"][0]["id"] in {"d1", "d3"}
    assert process.returncode == 0


@pytest.mark.slow
def test_an_assistant_that_leaves_without_reading_its_answers_is_no_fault(index):
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    lines = [{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}]
    lines += [{"jsonrpc": "2.0", "id": number, "method": "tools/list"} for number in range(2, 40)]
    with subprocess.Popen(
        [sys.executable, "-m", "rankhouse", "serve", str(index), "--mcp"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        process.stdout.close()
        process.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        process.stdin.close()
        said = process.stderr.read()
        assert process.wait(300) == 0, said
    assert said == ""


@pytest.mark.slow
def test_options_of_an_address_mean_nothing_here(index):
    done = subprocess.run(
        [sys.executable, "-m", "rankhouse", "serve", str(index), "--mcp", "--port", "9"],
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--port would change nothing here: --mcp talks on standard input and output" in done.stderr


@pytest.mark.slow
def test_a_folder_is_an_assistants_too_and_its_changes_are_noticed(tmp_path):
    (tmp_path / "pilots.md").write_text("# Pilots\n\nPilots steer ships into the harbour.\n")

    async def questions(client):
        found = await client.call_tool("search", {"query": "who steers ships?"})
        assert [hit["id"] for hit in found.structured_content["hits"]] == ["pilots.md"]
        (tmp_path / "locks.md").write_text("# Locks\n\nA lock lifts barges.\n")
        for _ in range(3000):
            found = await client.call_tool("search", {"query": "barges"})
            if found.structured_content["hits"]:
                break
            await anyio.sleep(0.1)
        assert [hit["id"] for hit in found.structured_content["hits"]] == ["locks.md"]

    talk(questions, tmp_path, "--lexical", verb="up")
    done = subprocess.run(
        [sys.executable, "-m", "rankhouse", "up", str(tmp_path), "--mcp", "--port", "9"],
        timeout=300, check=False, text=True, capture_output=True,
    )  # fmt: skip
    assert done.returncode == 2
    assert "--port would change nothing here" in done.stderr
