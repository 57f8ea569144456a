"""rankhouse: neural document ranking, from a person's own files to a better ranking.

``import rankhouse as rh`` offers the whole of it under about thirty names. They are loaded when they
are first used: importing the package costs a few milliseconds, and torch is imported by what needs it.

>>> import rankhouse as rh
>>> index = rh.Index.build([rh.Document("d1", "Pilots steer ships into the harbour.")], "doc.index")
>>> index.search("who steers ships?", k=1).doc_ids
('d1',)
"""

from importlib import import_module

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for true; importing typing would be most of the import's time
if TYPE_CHECKING:
    from rankhouse.api.compare import compare as compare
    from rankhouse.api.explain import explain as explain
    from rankhouse.api.index import Index as Index
    from rankhouse.api.session import open_ranker as open_ranker
    from rankhouse.api.session import progress as progress
    from rankhouse.api.train import adapt as adapt
    from rankhouse.api.train import train as train
    from rankhouse.api.verbs import evaluate as evaluate
    from rankhouse.api.verbs import fuse as fuse
    from rankhouse.api.verbs import label as label
    from rankhouse.api.verbs import rerank as rerank
    from rankhouse.api.verbs import write_qrels as write_qrels
    from rankhouse.api.verbs import write_run as write_run
    from rankhouse.core.errors import RankhouseError as RankhouseError
    from rankhouse.core.errors import RankhouseWarning as RankhouseWarning
    from rankhouse.core.nouns import Document as Document
    from rankhouse.core.nouns import Pair as Pair
    from rankhouse.core.nouns import Passage as Passage
    from rankhouse.core.nouns import Query as Query
    from rankhouse.core.nouns import Ranker as Ranker
    from rankhouse.core.nouns import Ranking as Ranking
    from rankhouse.core.nouns import SearchResult as SearchResult
    from rankhouse.core.qrels import Qrels as Qrels
    from rankhouse.core.run import Run as Run
    from rankhouse.io.corpora import read_documents as read_documents
    from rankhouse.io.corpora import read_queries as read_queries
    from rankhouse.io.trec import read_qrels as read_qrels
    from rankhouse.io.trec import read_run as read_run
    from rankhouse.systems.notation import system as system
    from rankhouse.systems.system import System as System

_HOMES = {
    "Index": "api.index",
    "system": "systems.notation",
    "System": "systems.system",
    "open_ranker": "api.session",
    **dict.fromkeys(("rerank", "fuse", "label", "evaluate", "write_qrels", "write_run"), "api.verbs"),
    "compare": "api.compare",
    "progress": "api.session",
    "train": "api.train",
    "adapt": "api.train",
    "explain": "api.explain",
    **dict.fromkeys(("read_documents", "read_queries"), "io.corpora"),
    **dict.fromkeys(("read_qrels", "read_run"), "io.trec"),
    **dict.fromkeys(("Query", "Document", "Passage", "Pair", "Ranker"), "core.nouns"),
    "Run": "core.run",
    **dict.fromkeys(("Ranking", "SearchResult"), "core.nouns"),
    "Qrels": "core.qrels",
    **dict.fromkeys(("RankhouseError", "RankhouseWarning"), "core.errors"),
}

__all__ = [  # noqa: RUF022 - in the order in which people meet them
    "Index",
    "system",
    "System",
    "open_ranker",
    "rerank",
    "fuse",
    "label",
    "train",
    "adapt",
    "evaluate",
    "compare",
    "explain",
    "progress",
    "read_documents",
    "read_queries",
    "read_qrels",
    "read_run",
    "write_qrels",
    "write_run",
    "Query",
    "Document",
    "Passage",
    "Pair",
    "Ranker",
    "Run",
    "Ranking",
    "SearchResult",
    "Qrels",
    "RankhouseError",
    "RankhouseWarning",
    "__version__",
]


if not TYPE_CHECKING:  # with it, type checkers would let every misspelt name pass

    def __getattr__(name: str) -> object:
        """Import what a name stands for when it is first used (PEP 562)."""
        if name not in _HOMES:
            from difflib import get_close_matches  # noqa: PLC0415 - only for a name that is wrong

            close = get_close_matches(name, _HOMES, 1)
            guess = f"; did you mean {close[0]}?" if close else ""
            raise AttributeError(f"module 'rankhouse' has no attribute '{name}'{guess}")
        value = getattr(import_module(f"rankhouse.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
