"""The routes of the page: an address or a form becomes a record, a thread does its work."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rankhouse.core.errors import RankhouseError
from rankhouse.serve.contracts.requests import Threads, answer, from_query
from rankhouse.serve.folder.files import ENCODING, LOADING
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page import ask, collection, document, files, judge, queries, runs, train, why
from rankhouse.serve.page.render import fault_page, page, read_form, send_static, trimmed
from rankhouse.serve.search.systems import usual_systems

Parameters = ImmutableMultiDict[str, str]
Work = Callable[[ServedCollection, Request, Any], Response]
_OF_VECTORS = frozenset(usual_systems((("encoder", "default"),), ())) - usual_systems((), ()).keys()
"""Systems that are there when a folder's vectors are."""


def routes(service: ServedCollection) -> list[BaseRoute]:
    """Return the routes of the page."""
    threads, pools = Threads("page"), judge.Pools(service.catalogue)

    def view(
        path: str, fields: type[Struct], show: Work, form: type[Struct] = Struct, write: Work | None = None
    ) -> Route:
        """Return a route whose page shows what an address asks; posted, a form is written first."""

        async def answered(request: Request) -> Response:
            try:
                if write is not None and request.method == "POST":
                    posted = from_query(await read_form(request), form)
                    return await threads.call(write, service, request, posted)
                asked = from_query(_at_hand(service, trimmed(request.query_params)), fields)
                if not service.catalogue.indexes:
                    content = {"title": "Reranking", "rankers": list(service.catalogue.rankers)}
                    return page(request, "rerank_only.html.j2", content)
                return await threads.call(show, service, request, asked)
            except RankhouseError as error:
                return fault_page(request, error)

        return Route(path, answered, methods=["GET", "POST"] if write else ["GET"])

    judging, judged = partial(judge.show, pools), partial(judge.write, pools)
    return [
        view("/", ask.AskFields, ask.show),
        view("/why", why.WhyFields, why.show),
        view("/document", document.DocumentFields, document.show),
        view("/judge", judge.JudgeFields, judging, judge.JudgeForm, judged),
        view("/queries", queries.QueriesFields, queries.show),
        view("/runs", runs.RunsFields, runs.show),
        view("/train", Struct, train.show, train.TrainForm, train.write),
        view("/collection", collection.CollectionFields, collection.show),
        view("/files", files.FilesFields, files.show),
        Route("/work", partial(_work, service)),
        Route("/static/{name}", send_static),
    ]


def _at_hand(service: ServedCollection, asked: Parameters) -> Parameters:
    """Leave out systems that need vectors on a page that awaits them, and says so."""
    if asked.get("export", "html") != "html" or service.standing.work not in (LOADING, ENCODING):
        return asked
    awaited = _OF_VECTORS.difference(service.catalogue.systems(asked.get("index")))
    kept = [
        (name, one)
        for name, one in asked.multi_items()
        if name not in ("system", "before") or one.partition(">>")[0] not in awaited
    ]
    return ImmutableMultiDict(kept)


async def _work(service: ServedCollection, _request: Request) -> Response:
    """Answer the page's script, which asks how far the work on a folder is."""
    return answer(service.work._asdict(), headers={"cache-control": "no-store"})
