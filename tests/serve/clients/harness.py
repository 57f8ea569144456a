"""Helpers of the scripts of this folder: each calls the service through one unmodified client, in its venv.

A script reads what it needs as JSON from standard input, runs its functions one after the other, and prints
what each gave, or what it raised, as JSON. Tests compare that with scores computed offline.
"""

import importlib.metadata
import json
import sys
import time

SETUP = json.load(sys.stdin)
"""base, busy (a service with a full queue), key, model, encoder, query, documents, texts, long, huge."""
CALLS = {}


def call(function):
    """Let a function be run, under its name."""
    CALLS[function.__name__] = function
    return function


def error_calls(rerank, until_overloaded=True):
    """Let a client meet every refusal.

    Args:
        rerank: A function of key, model and documents, and of base: how this client reranks, without retries.
        until_overloaded: Whether it can be told to ask the busy service.
    """
    ask = {
        "key": SETUP["key"],
        "model": SETUP["model"],
        "documents": SETUP["documents"],
        "base": SETUP["base"],
    }
    CALLS["wrong_key"] = lambda: rerank(**{**ask, "key": "not-a-key"})
    CALLS["unknown_model"] = lambda: rerank(**{**ask, "model": SETUP["model"][:-1]})
    CALLS["too_large"] = lambda: rerank(**{**ask, "documents": ["word " * (SETUP["huge"] // 5)]})
    CALLS["wrong_type"] = lambda: rerank(**{**ask, "documents": ["a text", 7]})
    CALLS["nothing"] = lambda: rerank(**{**ask, "documents": []})
    if until_overloaded:
        CALLS["overloaded"] = lambda: until_raises(lambda: rerank(**{**ask, "base": SETUP["busy"]}))


def until_raises(function, seconds=60):
    """Call again until the queue is full just then."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        function()
    return "never overloaded"


def raised(error):
    """Return what a client makes of a refusal."""
    response = getattr(error, "response", None)
    status = next(
        (
            value
            for value in (
                getattr(error, "status_code", None),
                getattr(error, "http_status", None),
                getattr(response, "status_code", None),
            )
            if value is not None
        ),
        None,
    )
    said = " ".join(str(part) for part in (error, getattr(error, "body", ""), getattr(response, "text", "")))
    return {"raised": type(error).__name__, "status": status, "message": said[:2000]}


def run(*packages):
    """Run every call, and print what came of it.

    Args:
        packages: Distributions whose versions are told.
    """
    seen = {}
    for name, function in CALLS.items():
        try:
            seen[name] = function()
        except Exception as error:  # noqa: BLE001 - what a client raises is what is tested
            seen[name] = raised(error)
    versions = {package: importlib.metadata.version(package) for package in packages}
    print("\n" + json.dumps({"versions": versions, "calls": seen}))
