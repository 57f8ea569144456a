"""The routes of all contracts that clients speak, and of their description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

import rankhouse
from rankhouse.serve.contracts import embeddings, rerank, score, tei
from rankhouse.serve.contracts.openapi import openapi_route

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker
    from rankhouse.serve.host.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of rerankers' and encoders' clients."""

    def rankers() -> Mapping[str, ServedRanker]:
        return service.catalogue.rankers

    parts = (rerank.routes(rankers), score.routes(rankers), embeddings.routes(rankers), tei.routes(rankers))
    return [*(route for part in parts for route in part), openapi_route(rankhouse.__version__)]
