"""A search engine on a loopback port that answers from our own index, for the real clients to talk to.

It is strict about what it is asked: a body it does not know is refused, as is a document whose terms are not
those of the index. Term queries are answered by the index's own engine with the configured similarity,
vectors by comparing all of them, and text searches by BM25.
"""

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

import numpy as np

from rankhouse.index.lexical.search import LexicalOptions, Retriever

SIMILARITIES = {
    "BM25": lambda s: f"bm25(k1={s['k1']}, b={s['b']})",
    "LMDirichlet": lambda s: f"ql(mu={s['mu']})",
    "LMJelinekMercer": lambda s: f"jm(lambda={s['lambda']})",
}


class Refused(Exception):
    """Answered by a status and a reason."""


class EngineStub:
    def __init__(self, index, password=""):
        self.index, self.password = index, password
        self.indexes, self.requests = {}, []
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                length = int(self.headers.get("content-length") or 0)
                raw = self.rfile.read(length).decode()
                status, body = stub.handle(self.command, self.path, raw, self.headers)
                payload = b"" if self.command == "HEAD" else json.dumps(body).encode()
                self.send_response(status)
                kind = self.headers.get("accept", "application/json").split(",")[0]
                self.send_header("content-type", kind if "json" in kind else "application/json")
                self.send_header("x-elastic-product", "Elasticsearch")
                self.send_header("content-length", str(len(payload)))
                self.end_headers()
                self.wfile.write(payload)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def handle(self, method, path, raw, headers):
        url = urlparse(path)
        self.requests.append((method, url.path, dict(headers)))
        name, _, what = url.path.strip("/").partition("/")
        try:
            if method in ("POST", "PUT") and name == "_bulk":
                return 200, self.bulk([json.loads(line) for line in raw.splitlines() if line])
            if method == "PUT" and not what:
                return self.create(name, json.loads(raw))
            if name not in self.indexes:
                return 404, {
                    "error": {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}
                }
            if method == "DELETE" and not what:
                del self.indexes[name]
                return 200, {"acknowledged": True}
            body = json.loads(raw) if raw else {}
            options = parse_qs(url.query)
            return 200, getattr(self, f"on{what}")(name, body, options) if what else {}
        except (AssertionError, KeyError, AttributeError) as fault:
            return 500, {"error": {"type": "stub", "reason": repr(fault)}, "status": 500}
        except Refused as refusal:
            return 400, {
                "error": {"type": "illegal_argument_exception", "reason": str(refusal)},
                "status": 400,
            }

    def create(self, name, body):
        if name in self.indexes:
            raise Refused(f"index [{name}] already exists")
        assert set(body) == {"settings", "mappings"}
        assert body["mappings"]["dynamic"] == "strict"
        self.indexes[name] = {**body, "documents": {}, "purged": True}
        return 200, {"acknowledged": True, "index": name}

    def bulk(self, lines):
        items, wrong = [], False
        for action, source in zip(lines[::2], lines[1::2], strict=True):
            where = action["index"]
            index = self.indexes[where["_index"]]
            properties = index["mappings"]["properties"]
            reason = "" if set(source) <= set(properties) else "strict_dynamic_mapping_exception"
            if "vector" in source and len(source["vector"]) != self.dimension(properties["vector"]):
                reason = "The vector has a different number of dimensions"
            if reason:
                wrong = True
                items.append({"index": {"status": 400, "error": {"type": "x", "reason": reason}}})
                continue
            if "terms" in source:
                self.check_terms(source)
            is_new = where["_id"] not in index["documents"]
            index["documents"][where["_id"]] = source
            index["purged"] &= is_new
            items.append({"index": {"_id": where["_id"], "status": 201 if is_new else 200}})
        return {"errors": wrong, "items": items, "took": 1}

    @staticmethod
    def dimension(field):
        return field.get("dims") or field.get("dimension")

    def check_terms(self, source):
        segment, row = self.index.documents.find(source["id"])
        counts = {}
        for term in source["terms"].split(" "):
            counts[term] = counts.get(term, 0) + 1
        assert counts == dict(segment.terms_of(row)), source["id"]

    def on_mapping(self, name, body, options):
        if body:
            assert set(body) == {"_meta"}
            self.indexes[name]["mappings"] |= body
        return {name: {"mappings": self.indexes[name]["mappings"]}}

    def on_refresh(self, name, body, options):
        return {"_shards": {"total": 1, "successful": 1, "failed": 0}}

    def on_count(self, name, body, options):
        return {"count": len(self.indexes[name]["documents"])}

    def on_forcemerge(self, name, body, options):
        assert options == {"only_expunge_deletes": ["true"]}
        self.indexes[name]["purged"] = True
        return {"_shards": {"total": 1, "successful": 1, "failed": 0}}

    def on_search(self, name, body, options):
        assert options.get("search_type") == ["dfs_query_then_fetch"]
        size = body.pop("size")
        fields, _ = body.pop("_source"), body.pop("track_total_hits")
        if size > 10_000:
            raise Refused("Result window is too large")
        index = self.indexes[name]
        kind, found = self.found(index, body, size)
        hits = []
        for key, score in found[:size]:
            source = {f: v for f, v in index["documents"][key].items() if fields and f in fields}
            hits.append({"_index": name, "_id": key, "_score": score, "_source": source})
        return {"took": 1, "timed_out": False, "kind": kind, "hits": {"hits": hits}}

    def found(self, index, body, size):
        match body:
            case {"query": {"bool": {"should": terms}}} if len(body) == 1:
                weights = {term["term"]["terms"]["value"]: term["term"]["terms"]["boost"] for term in terms}
                return "terms", self.by_terms(index, weights, size)
            case {"query": {"bool": {"filter": [{"ids": {"values": ids}}]}}}:
                return "ids", [(key, 0.0) for key in ids if key in index["documents"]]
            case {"query": {"bool": {"filter": [{"terms": {"doc_id": values}}]}}}:
                return "terms", [(k, 0.0) for k, d in index["documents"].items() if d.get("doc_id") in values]
            case {"query": {"multi_match": {"query": text, "fields": ["title", "text"]}}}:
                model = Retriever(self.index, LexicalOptions("bm25(k1=1.2, b=0.75)"))
                return "text", self.keyed(index, model.hits(model.terms(text), size))
            case {
                "query": {
                    "script_score": {"query": {"bool": {"filter": [{"exists": exists}]}}, "script": script}
                }
            }:
                field = exists["field"]
                return "script", self.by_vectors(index, field, lambda v: self.scripted(script, field, v))
            case {"query": {"knn": knn}} if len(knn) == 1:
                ((field, asked),) = knn.items()
                return "knn", self.by_vectors(
                    index, field, lambda v: self.nearest(index, field, asked["vector"], v)
                )
            case {"knn": {"field": field, "query_vector": vector, "k": _, "num_candidates": _}}:
                return "knn", self.by_vectors(index, field, lambda v: self.nearest(index, field, vector, v))
        raise Refused(f"unknown query [{json.dumps(body)[:200]}]")

    def by_terms(self, index, weights, size):
        assert index["purged"], "statistics would count replaced documents"
        field = index["mappings"]["properties"]["terms"]
        similarity = index["settings"]["index"]["similarity"][field["similarity"]]
        model = Retriever(self.index, LexicalOptions(SIMILARITIES[similarity["type"]](similarity)))
        return self.keyed(index, model.hits(weights, size))

    def keyed(self, index, hits):
        keys = {d["id"]: key for key, d in index["documents"].items() if d["passage"] == 0}
        ids = self.index.ids(hits.rows)
        return [(keys[doc_id], score) for doc_id, score in zip(ids, hits.scores.tolist(), strict=True)]

    def by_vectors(self, index, field, score):
        scored = [(k, float(score(np.array(d[field])))) for k, d in index["documents"].items() if field in d]
        assert all(value >= 0 for _, value in scored), "script_score script returned a negative score"
        return sorted(scored, key=lambda hit: -hit[1])

    def scripted(self, script, field, vector):
        params = script["params"]
        if script.get("lang") == "knn":
            assert (script["source"], params["field"]) == ("knn_score", field)
            return self.space(params["space_type"], np.array(params["query_value"]), vector)
        asked = np.array(params["q"])
        function = re.sub(r"\s", "", script["source"]).replace(f"'{field}'", "F")
        return {
            "dotProduct(params.q,F)+params.shift": lambda: asked @ vector + params["shift"],
            "1/(1+Math.pow(l2norm(params.q,F),2))": lambda: 1 / (1 + ((asked - vector) ** 2).sum()),
            "cosineSimilarity(params.q,F)+1.0": lambda: self.cosine(asked, vector) + 1,
        }[function]()

    @staticmethod
    def cosine(one, other):
        return one @ other / (np.linalg.norm(one) * np.linalg.norm(other) + 1e-30)

    def space(self, kind, one, other):
        if kind == "l2":
            return 1 / (1 + ((one - other) ** 2).sum())
        if kind == "cosinesimil":
            return (1 + self.cosine(one, other)) / 2
        product = one @ other
        return product + 1 if product >= 0 else 1 / (1 - product)

    def nearest(self, index, field, asked, vector):
        mapping = index["mappings"]["properties"][field]
        kind = mapping.get("similarity") or mapping["method"]["space_type"]
        named = {"l2_norm": "l2", "max_inner_product": "innerproduct"}
        return self.space(named.get(kind, kind), np.array(asked), vector)
