"""The straightforward server that ``benchmarks/serve.py`` measures beside ours.

sentence-transformers' ``CrossEncoder.predict`` with its defaults behind Starlette, uvicorn and msgspec, as
anyone would write it in an afternoon: a request is decoded, scored in a worker thread, and answered.
``--at-once`` is how many requests may be scored at the same time: one can be quicker on a quiet machine,
eight on a busy one.

    python benchmarks/serve_peer.py CHECKPOINT --port 8081 --threads 2
"""

from __future__ import annotations

import argparse

import anyio
import msgspec
import torch
import uvicorn
from sentence_transformers import CrossEncoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


class RerankBody(msgspec.Struct):
    """A request's body."""

    query: str
    documents: list[str]


def application(checkpoint: str, at_once: int) -> Starlette:
    model = CrossEncoder(checkpoint, device="cpu", max_length=512)
    read, write = msgspec.json.Decoder(RerankBody), msgspec.json.Encoder()
    limiter = anyio.CapacityLimiter(at_once)

    async def rerank(request: Request) -> Response:
        asked = read.decode(await request.body())
        pairs = [(asked.query, text) for text in asked.documents]
        scores = await anyio.to_thread.run_sync(
            lambda: model.predict(pairs, show_progress_bar=False), limiter=limiter
        )
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        results = [{"index": i, "relevance_score": float(scores[i])} for i in order]
        return Response(write.encode({"results": results}), media_type="application/json")

    async def ready(request: Request) -> Response:
        del request
        return Response("ok")

    return Starlette(routes=[Route("/rerank", rerank, methods=["POST"]), Route("/readyz", ready)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--port", type=int, default=8081)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--at-once", type=int, default=8)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    uvicorn.run(application(given.checkpoint, given.at_once), port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
