"""Page of a served folder's files: by kind, the largest ones, and those left out and why."""

from __future__ import annotations

from heapq import nlargest
from typing import Literal

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import MissingInput
from rankhouse.serve.contracts.requests import answer
from rankhouse.serve.folder.files import FileFacts, FolderContents
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.render import download, page, wants_html

_LARGEST, _MOST_NAMES = 10, 200
_REASONS = {
    "hidden": "Hidden files and folders",
    "ignored": "Excluded by .gitignore or --exclude",
    "folders left out": "Folders that are generated, linked or ignored",
    "symbolic links": "Symbolic links",
    "read under another name": "Links to files that are indexed under another name",
    "not in --include": "Not matched by --include",
    "over --max-size": "Larger than --max-size",
    "empty": "Empty files",
    "unreadable": "Could not be opened",
    "pipes, sockets and devices": "Pipes, sockets and devices",
    "without an ending, and no text": "No file extension, and not text",
}
"""Reason in the list of a folder's files -> how the page puts it; others name a format."""


class FilesFields(Struct):
    """Fields of the request for the list."""

    export: Literal["html", "json"] = "html"


class KindFacts(Struct, frozen=True):
    """The files of one kind that are indexed."""

    kind: str
    files: int
    documents: int
    bytes: int


class ListedFile(Struct, frozen=True, omit_defaults=True):
    """A file, and what is wrong with it."""

    name: str
    kind: str
    documents: int
    bytes: int
    fault: str = ""


class LeftOutGroup(Struct, frozen=True):
    """Files and folders that are left out for one reason; ``names`` are the first of them."""

    reason: str
    count: int
    names: list[str]


class FilesReport(Struct, frozen=True):
    """Files of a folder that are indexed."""

    files: int
    documents: int
    bytes: int
    kinds: list[KindFacts]
    largest: list[ListedFile]
    faults: list[ListedFile]
    left_out: list[LeftOutGroup]


def report_of(contents: FolderContents) -> FilesReport:
    """Sum up a folder's files: by kind, those with faults, and by the reason why they are left out."""
    read = {name: one for name, one in contents.files.items() if one.documents}
    by_kind = dict[str, list[FileFacts]]()
    for one in read.values():
        by_kind.setdefault(one.kind, []).append(one)
    kinds = [KindFacts(kind, *_sums(facts)) for kind, facts in by_kind.items()]
    left = contents.left
    groups = [LeftOutGroup(reason, n, left.names.get(reason, [])) for reason, n in left.counts.items()]
    return FilesReport(
        *_sums(list(read.values())),
        kinds=sorted(kinds, key=lambda one: (-one.files, one.kind)),
        largest=[_listed(*one) for one in nlargest(_LARGEST, read.items(), lambda one: one[1].size)],
        faults=[_listed(*one) for one in sorted(contents.files.items()) if one[1].fault],
        left_out=sorted(groups, key=lambda one: (-one.count, one.reason)),
    )


def _sums(facts: list[FileFacts]) -> tuple[int, int, int]:
    """Return how many files, documents and bytes these are."""
    return len(facts), sum(one.documents for one in facts), sum(one.size for one in facts)


def _listed(name: str, one: FileFacts) -> ListedFile:
    return ListedFile(name, one.kind, one.documents, one.size, fault=one.fault)


def titled(kind: str) -> str:
    """Return what a kind of file is called at the beginning of a line: "Text", but "reStructuredText"."""
    return kind.capitalize() if kind.islower() else kind


def _in_words(reason: str) -> str:
    """Say why files are left out."""
    kind, _, needed = reason.partition(" (read with  ")
    if needed:
        return f"{kind}: needs {needed.removesuffix(')')}"
    return _REASONS.get(reason, f"{reason}: format not supported")


def show(service: ServedCollection, request: Request, asked: FilesFields) -> Response:
    """Return the page of a folder's files, or the same as JSON."""
    if service.contents is None:
        raise MissingInput("no folder is served here; rankhouse up FOLDER serves one")
    report = report_of(FolderContents.load(service.contents))
    if asked.export == "json":
        return download("files.json", msgspec.json.encode(report))
    if "application/json" in request.headers.get("accept", "") and not wants_html(request):
        return answer(report, headers={"cache-control": "no-store"})
    content = {
        "title": "What is indexed",
        "index": service.catalogue.view().name,
        "report": report,
        "titled": titled,
        "groups": [(_in_words(one.reason), one.count, one.names[:_MOST_NAMES]) for one in report.left_out],
        "most": _MOST_NAMES,
    }
    return page(request, "files.html.j2", content)
