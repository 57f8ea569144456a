"""A store: one JSON file that holds texts and is searched by the words that query and text share."""

import json
from dataclasses import dataclass
from pathlib import Path

from rankhouse.core.nouns import Document
from rankhouse.stores.store import Store, read_contents


@dataclass(eq=False, repr=False, kw_only=True)
class JsonFile(Store):
    """``jsonfile(where="notes.json")``."""

    holds = frozenset({"texts"})
    batch, batch_bytes, most = 1000, 1 << 20, 1 << 20

    where: str

    def __post_init__(self):
        self.name, self._path = f"jsonfile {self.where}", Path(self.where)
        self._held = json.loads(self._path.read_text("utf-8")) if self._path.exists() else {}

    def exists(self):
        return bool(self._held)

    def read(self):
        return read_contents(self._held["contents"], self.name)

    def count(self):
        return len(self._held["records"])

    def dimension(self):
        return 0

    def create(self, contents):
        self._held = {"records": {}}
        self.describe(contents)

    def describe(self, contents):
        self._held["contents"] = contents.to_json()
        self.finish()

    def drop(self):
        self._path.unlink()
        self._held = {}

    def write(self, records):
        self._held["records"] |= {one.doc_id: [one.title, one.text] for one in records}

    def finish(self):
        self._path.write_text(json.dumps(self._held), "utf-8")

    def nearest(self, vector, k, similarity):
        raise self.cannot("holds no vectors", "search its texts")

    def search_text(self, text, k):
        asked = set(text.lower().split())
        shared = {i: len(asked & set(" ".join(t).lower().split())) for i, t in self._held["records"].items()}
        best = sorted(shared, key=lambda doc_id: (-shared[doc_id], doc_id))
        return [(doc_id, float(shared[doc_id])) for doc_id in best[:k] if shared[doc_id]]

    def fetch(self, doc_ids):
        records = self._held["records"]
        return (Document(i, records[i][1], records[i][0]) for i in doc_ids if i in records)
