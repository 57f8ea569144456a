"""Inputs that are legal to write and terrible to read: huge words, deep nesting, bombs, markup, escapes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from .calls import call
from .verdicts import Trial, Verdict, message, refused
from .world import CPU, KNRM, LEARN, SETTINGS, TASK

PATIENCE = 40.0
DEEP = "[" * 1_000 + "]" * 1_000
DEEPER = '{"a":' * 100_000 + "1" + "}" * 100_000


def _documents(text: str) -> bytes:
    return (json.dumps({"id": "a", "text": text}) + "\n").encode()


def _bomb(pack: Callable[[bytes], bytes]) -> Callable[[], bytes]:
    return lambda: pack(b"A" * (1 << 30))


def _marked(text: bytes) -> bytes:
    return b"<DOC>\n<DOCNO>1</DOCNO>\n<TEXT>" + text + b"</TEXT>\n</DOC>\n"


def _zstd(data: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd.compress(data)


# Name -> (file, bytes of it, surely refused?)
CORPORA: dict[str, tuple[str, Callable[[], bytes], bool]] = {
    "a word of 4 MB, hexadecimal": ("m.jsonl", lambda: _documents("0123456789abcdef" * 250_000), False),
    "a word of 20 MB": ("m.jsonl", lambda: _documents("ab" * 10_000_000), False),
    "a word of hyphens": ("m.jsonl", lambda: _documents("a-" * 1_000_000), False),
    "a word of apostrophes": ("m.jsonl", lambda: _documents("a'" * 1_000_000), False),
    "a word of dots": ("m.jsonl", lambda: _documents("a." * 1_000_000), False),
    "digits and commas": ("m.jsonl", lambda: _documents("1,2.3" * 500_000), False),
    "underscores": ("m.jsonl", lambda: _documents("_a" * 1_000_000), False),
    "unbroken Chinese": ("m.jsonl", lambda: _documents("漢字" * 500_000), False),
    "combining marks": ("m.jsonl", lambda: _documents("a" + "\u0301" * 1_000_000), False),
    "minified code": ("m.jsonl", lambda: _documents("function(a){b=c.d[e]};" * 100_000), False),
    "white space": ("m.jsonl", lambda: _documents(" \t" * 3_000_000), False),
    "nested JSON": ("m.jsonl", f'{{"id": "a", "text": "b", "x": {DEEP}}}\n'.encode, False),
    "JSON nested 100,000 deep": ("m.jsonl", (DEEPER + "\n").encode, True),
    "an id of 10 MB": ("m.jsonl", lambda: json.dumps({"id": "a" * 10_000_000, "text": "b"}).encode(), False),
    "one line of 300 MB": ("m.jsonl", lambda: b"A" * 300_000_000, True),
    "one line of 300 MB, tsv": ("m.tsv", lambda: b"A" * 300_000_000, True),
    "a gzip bomb": ("m.jsonl.gz", _bomb(gzip.compress), True),
    "a zstd bomb": ("m.jsonl.zst", _bomb(_zstd), True),
    "a gzip bomb, tsv": ("m.tsv.gz", _bomb(gzip.compress), True),
    "unclosed DOCs": ("m.trec", lambda: b"<DOC>\n" * 300_000, True),
    "unclosed TEXTs": ("m.trec", lambda: _marked(b"<TEXT>" * 300_000), False),
    "many brackets": ("m.trec", lambda: _marked(b"<" * 2_000_000), False),
    "many ampersands": ("m.trec", lambda: _marked(b"&" * 2_000_000), False),
    "a million empty lines": ("m.jsonl", lambda: b"\n" * 1_000_000, False),
    "no document": ("m.jsonl", lambda: b"", True),
    "nul bytes": ("m.jsonl", lambda: b"\0" * 1_000_000, True),
    "a lone surrogate": ("m.jsonl", lambda: b'{"id": "a", "text": "\\ud800"}\n', False),
    "lone surrogates in the id": ("m.jsonl", lambda: b'{"id": "\\udcff", "text": "b"}\n', False),
    "a huge number": ("m.jsonl", lambda: b'{"id": "a", "text": "b", "n": %s}' % (b"9" * 99_999), False),
    "an id that is a float": ("m.jsonl", lambda: b'{"id": 1.5, "text": "b"}\n', False),
    "UTF-16": ("m.jsonl", lambda: '{"id": "a", "text": "b"}\n'.encode("utf-16"), True),
}  # fmt: skip


def trials(seed: int) -> Iterator[Trial]:
    """Return terrible corpora for index and doctor, and terrible files of the other kinds."""
    del seed
    for name, (file, content, sure) in CORPORA.items():
        for analyzer in ("english", "whitespace", "tweet"):
            line = ["index", file, "--workers", "1", "--analyzer", analyzer, "--out", "new.index"]
            yield _trial(f"index --analyzer {analyzer}: {name}", file, content, line, sure)
        yield _trial(f"doctor: {name}", file, content, ["doctor", file], False)
    for name, (file, content, sure) in CORPORA.items():
        queries = f"q.{file.split('.', 1)[1]}".replace("trec", "txt")
        line = ["search", "--index", "my.index", "--queries", queries, "--out", "new.run"]
        yield _trial(f"search: queries with {name}", queries, content, line, sure)
    yield from _other_kinds()
    for name, line, sure in _settings():
        yield Trial(name, lambda f, a=line, s=sure: _judge(f, a, sure=s))


def _other_kinds() -> Iterator[Trial]:
    passages = ["label", *TASK, "--rule", 'judged("qrels.txt")', "--passages", "p.jsonl", "--out", "new"]
    vectors = ["train", *LEARN, "--ranker", 'knrm(vectors="v.txt", min_count=1)', *SETTINGS, "--out", "new"]
    pairs = [
        "train",
        "--index",
        "my.index",
        "--ranker",
        KNRM,
        *SETTINGS,
        "--pairs",
        "m.jsonl",
        "--out",
        "new",
    ]
    run = ["fuse", "m.run", "bm25.run", "--out", "new.run"]
    qrels = ["evaluate", "--qrels", "m.txt", "bm25.run", "--per-query", "new.tsv"]
    recipe = ["run", "m.toml", "--out", "new.out"]
    numbers = " ".join(["0.1"] * 5_000_000)
    pair = '{{"query_id": "q1", "query": "x", "doc_id": "d", "passage": {}, "text": "y", "label": {}}}\n'
    files: list[tuple[str, str, list[str], str, bool]] = [
        (
            "nested passages",
            "p.jsonl",
            passages,
            f'{{"doc_id": "d1-1", "index": 0, "text": "b", "x": {DEEP}}}',
            False,
        ),
        ("deeper passages", "p.jsonl", passages, DEEPER, True),
        (
            "passages of other documents",
            "p.jsonl",
            passages,
            '{"doc_id": "zz", "index": 0, "text": "b"}',
            True,
        ),
        ("vectors with 5 million numbers", "v.txt", vectors, f"word {numbers}\n", False),
        ("vectors of one word", "v.txt", vectors, "harbour\n" * 10, True),
        ("vectors not finite", "v.txt", vectors, "harbour nan inf 1\nship 1 2 3\n", True),
        ("nested pairs", "m.jsonl", pairs, DEEPER, True),
        ("label 2", "m.jsonl", pairs, pair.format(0, 2), True),
        ("passage -1", "m.jsonl", pairs, pair.format(-1, 1) + pair.format(0, 0), True),
        (
            "a pair labelled both ways",
            "m.jsonl",
            pairs,
            pair.format(0, 1) + pair.format(0, 0),
            False,
        ),  # a warning
        ("a label of 400 digits", "m.jsonl", pairs, pair.format(0, "9" * 400), True),
        ("an empty run", "m.run", run, "", True),
        ("scores nan", "m.run", run, "q1 Q0 d1-1 1 nan t\n", True),
        ("scores inf", "m.run", run, "q1 Q0 d1-1 1 inf t\n", True),
        ("scores 1e999", "m.run", run, "q1 Q0 d1-1 1 1e999 t\n", True),
        ("scores 1_0", "m.run", run, "q1 Q0 d1-1 1 1_0 t\n", True),
        ("a rank of 400 digits", "m.run", run, f"q1 Q0 d1-1 {'9' * 400} 1 t\n", False),
        ("a document twice", "m.run", run, "q1 Q0 d1-1 1 2 t\nq1 Q0 d1-1 2 1 t\n", True),
        ("a tag that is not UTF-8", "m.run", run, "q1 Q0 d1-1 1 2 t\udcff\n", False),
        ("grades 1_0", "m.txt", qrels, "q1 0 d1-1 1_0\n", True),
        ("grades of 20 digits", "m.txt", qrels, f"q1 0 d1-1 {'9' * 20}\n", True),
        ("grades of other digits", "m.txt", qrels, "q1 0 d1-1 ٣\n", True),
        ("grade 1.5", "m.txt", qrels, "q1 0 d1-1 1.5\n", True),
        ("no judgements", "m.txt", qrels, "", True),
        ("a recipe nested deep", "m.toml", recipe, f"title = 'x'\na = {DEEP}\n", True),
        ("a recipe of another kind", "m.toml", recipe, "title = 5\n", True),
        ("a recipe that is empty", "m.toml", recipe, "", True),
    ]
    for name, file, line, content, sure in files:
        data = content.encode(errors="surrogateescape")
        yield _trial(f"{line[0]}: {name}", file, lambda d=data: d, line, sure)
    escapes = ("./../../../../precious", "../precious", "/tmp/precious", "a/../../precious", "~/precious")
    for i, path in enumerate((*escapes, "../../mine", "..", ".", "")):
        for station in ("evaluate", "rerank", "label"):
            yield Trial(
                f"recipe: {station} writes to {path!r}", lambda f, p=path, s=station, n=i: _escape(f, s, p, n)
            )


def _settings() -> Iterator[tuple[str, list[str], bool]]:
    train = ["train", *LEARN, "--ranker", KNRM, *SETTINGS, "--out", "new"]
    search = ["search", "--index", "my.index", "--queries", "queries.tsv", "--out", "new.run"]
    index = ["index", "corpus.jsonl", "--workers", "1", "--out", "new.index"]
    rerank = ["rerank", *TASK, "--ranker", 'crossencoder("cross")', *CPU, "--out", "new.run"]
    yield "train --set epochs= beside --epochs", [*train, "--epochs", "1", "--set", "epochs=2"], True
    yield "index --append --analyzer of another kind", [
        *("index", "more.jsonl", "--append", "--out", "full.index", "--analyzer", "whitespace"),
        *("--workers", "1"),
    ], True  # fmt: skip
    yield "search --device gpu, lexical", [*search, "--device", "gpu"], True
    yield "search --precision fp64, lexical", [*search, "--precision", "fp64"], True
    yield "index --segment-tokens 4000000000", [*index, "--segment-tokens", "4000000000"], False
    yield "index --workers 999", [*index[:2], "--workers", "999", "--out", "new.index"], False
    yield "search -k of 19 digits", [*search, "-k", "9" * 19], False
    yield "rerank of 10**18 documents", [*rerank, "--depth", "9" * 18], False
    for value in (DEEP, DEEPER[:100_000], "9" * 5_000):
        yield f"train --set rate={value[:10]}...", [*train, "--set", f"rate={value}"], True
        yield (
            f"run --set a={value[:10]}...",
            ["run", "recipe.toml", "--out", "o", "--set", f"a.b={value}"],
            True,
        )


def _trial(name: str, file: str, content: Callable[[], bytes], line: list[str], sure: bool) -> Trial:
    def attack(folder: Path) -> Verdict:
        (folder / file).write_bytes(content())
        return _judge(folder, line, sure=sure)

    return Trial(name, attack)


def _judge(folder: Path, line: list[str], *, sure: bool) -> Verdict:
    done = call(line, folder, PATIENCE)
    return refused(done) if sure else message(done)


def _escape(folder: Path, station: str, path: str, number: int) -> Verdict:
    """Run a recipe whose step names a place for a second output; nothing outside its result may change."""
    from .verdicts import contents, differences

    inside = folder / "a" / "b" / "c"
    inside.parent.mkdir(parents=True)
    (folder / "precious").mkdir()
    (folder / "precious" / "thesis.txt").write_text("years")
    steps = {
        "evaluate": 'qrels = "@root/qrels.txt"\nruns = ["@root/bm25.run"]\nper_query = PATH\n',
        "rerank": 'run = "@root/bm25.run"\nqueries = "@root/queries.tsv"\nindex = "@root/my.index"\n'
        'ranker = \'crossencoder("@root/cross")\'\ncache = PATH\nprecision = "fp32"\n',
        "label": 'run = "@root/bm25.run"\nqueries = "@root/queries.tsv"\nindex = "@root/my.index"\n'
        "rule = 'judged(\"@root/qrels.txt\")'\nreport = PATH\n",
    }
    text = 'title = "x"\n[data]\nroot = "."\n[steps.s]\n' + f'command = "{station}"\n{steps[station]}'
    (folder / "e.toml").write_text(text.replace("PATH", json.dumps(path)))
    before = contents(folder)
    done = call(["run", "e.toml", "--out", "a/b/c"], folder)
    changed = [
        n for n in differences(before, contents(folder)) if not n.startswith("a/b/c") and ".lock" not in n
    ]
    if Path("/tmp/precious").exists():
        changed.append("/tmp/precious")
        Path("/tmp/precious").rename(folder / f"escaped-{number}")
    if changed:
        return Verdict("lost", f"exit {done.code}: {', '.join(changed[:3])}")
    return message(done)
