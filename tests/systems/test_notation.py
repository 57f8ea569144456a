"""The text of a system: Python's precedence, one canonical print that reads back, faults with their place."""

import string
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankhouse as rh

# text -> its canonical print
CANONICAL = {
    "bm25": "bm25",
    " bm25( k1 = 0.9,b=0.4 ) ": "bm25(k1=0.9, b=0.4)",
    "bm25(feedback='rm3(terms=10)')": "bm25(feedback=rm3(terms=10))",
    "ql(form='indri', feedback=rm3)": 'ql(form="indri", feedback=rm3)',
    "jm(lambda=0.1)": "jm(lambda=0.1)",
    "dense('DIR')": 'dense("DIR")',
    "dense(default)": "dense(default)",
    "dense('default', name='x')": 'dense(default, name="x")',
    "dense('biencoder(\"DIR\")')": 'dense(biencoder("DIR"))',
    "dense(open('DIR'), vectors='flat')": 'dense("DIR", vectors="flat")',
    "bm25+ql": "bm25 + ql",
    "bm25*0.5+ql*2.0": "0.5 * bm25 + 2 * ql",
    "bm25+(ql+jm)": "bm25 + ql + jm",
    "0.5*(bm25+2*ql)": "0.5 * bm25 + ql",
    "1*bm25": "bm25",
    "0.5*bm25%10+ql": "0.5 * (bm25 % 10) + ql",
    "(bm25+ql)%50": "(bm25 + ql) % 50",
    "bm25+ql%50": "bm25 + ql % 50",
    "bm25%100%20": "bm25 % 20",
    "bm25%20%100": "bm25 % 20",
    "bm25%100>>'DIR'": 'bm25 % 100 >> "DIR"',
    "(bm25%100)>>open('DIR')": 'bm25 % 100 >> "DIR"',
    "bm25+ql>>default": "bm25 + ql >> default",
    "bm25+(ql>>default)": "bm25 + (ql >> default)",
    "bm25>>default>>'b'": 'bm25 >> default >> "b"',
    "(bm25>>default)%10": "(bm25 >> default) % 10",
    "bm25>>open('DIR',tail='drop',depth=5)": 'bm25 >> open("DIR", depth=5, tail="drop")',
    "bm25>>crossencoder('D',split='sentences(10, 5)',pool='max')": (
        'bm25 >> crossencoder("D", split=sentences(10, 5), pool=max)'
    ),
    "bm25>>duot5('D',passages=monot5('E'),depth=10)": (
        'bm25 >> duot5("D", passages="monot5(\\"E\\")", depth=10)'
    ),
    "rrf(bm25,ql)": "rrf(bm25, ql)",
    "rrf(bm25,ql,k=10)": "rrf(bm25, ql, k=10)",
    "linear(bm25,ql,norm='z-score',weights=[1,0.7])": "bm25 + 0.7 * ql",
    "linear(bm25,ql,norm='z-score')": 'linear(bm25, ql, norm="z-score")',
    "linear(bm25,ql)": "linear(bm25, ql)",
    "linear(bm25+ql,jm,weights=(1,2),norm='z-score')": (
        'linear(bm25 + ql, jm, weights=[1, 2], norm="z-score")'
    ),
    "combmnz(bm25,rrf(ql,jm),norm='raw')": 'combmnz(bm25, rrf(ql, jm), norm="raw")',
    "bm25\n  % 10": "bm25 % 10",
}


def test_each_text_has_one_print_that_reads_back():
    for text, canonical in CANONICAL.items():
        read = rh.system(text)
        assert str(read) == canonical, text
        again = rh.system(canonical)
        assert again == read, text
        assert hash(again) == hash(read), text
        assert str(again) == canonical, text


def test_operators_on_objects_are_the_text():
    bm25, ql, dense = (rh.system(one) for one in ("bm25", "ql", 'dense("DIR")'))
    assert bm25 + 0.7 * dense == rh.system('bm25 + 0.7 * dense("DIR")')
    assert bm25 + dense * 0.7 == rh.system('bm25 + 0.7 * dense("DIR")')
    assert (bm25 + ql) % 50 >> "DIR" == rh.system('(bm25 + ql) % 50 >> "DIR"')
    assert bm25 % 50 >> 'crossencoder("DIR", depth=20)' == rh.system(
        'bm25 % 50 >> crossencoder("DIR", depth=20)'
    )
    assert bm25.fuse(ql, method="rrf(k=10)") == rh.system("rrf(bm25, ql, k=10)")
    assert bm25.rerank("DIR", depth=20, split="sentences(10,5)") == rh.system(
        'bm25 >> open("DIR", depth=20, split=sentences(10, 5))'
    )
    assert rh.system(bm25) is bm25
    assert rh.system("bm25") != rh.system("ql")
    assert len({rh.system("bm25 + ql"), bm25 + ql, bm25 + 0.5 * ql}) == 2
    with pytest.raises(TypeError):
        bm25 + 1
    with pytest.raises(TypeError):
        bm25 * ql


class Longest:
    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


def test_an_object_prints_clearly_and_is_not_read_back():
    ranker = Longest()
    held = rh.system("bm25") % 10 >> ranker
    assert str(held) == "bm25 % 10 >> <ranker Longest>"
    assert held == rh.system("bm25") % 10 >> ranker
    assert held != rh.system("bm25") % 10 >> Longest()
    with pytest.raises(rh.RankhouseError, match="save it and name its folder"):
        rh.system(str(held))
    with pytest.raises(rh.RankhouseError, match="give a ranker"):
        rh.system("bm25") >> 3
    with pytest.raises(rh.RankhouseError, match="give a ranker"):
        rh.system("bm25") >> rh.system("ql")


# --- any expression --------------------------------------------------------------------------------------

numbers = st.floats(0.01, 100, allow_nan=False).map(lambda n: round(n, 3))
names = st.text(string.printable + "äß🜚'\"\\", min_size=1, max_size=8).filter(
    lambda name: name.strip() and not name.endswith(")")
)
firsts = st.one_of(
    st.sampled_from(
        ["bm25", "ql", "jm(lambda=0.2)", "bm25(k1=1.2, b=0.75)", "bm25(feedback=rm3(docs=5))"]
    ).map(rh.system),
    names.map(lambda name: rh.system(f"dense({name!r})")),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "split": st.sampled_from(["sentences(10, 5)", "whole", "words(100)"]),
        "pool": st.sampled_from(["max", "top(3)", "first"]),
        "depth": st.integers(0, 999),
        "tail": st.sampled_from(["keep", "drop"]),
        "precision": st.sampled_from(["fp32", "bf16"]),
        "stored": st.booleans(),
    },
)
rankers = st.one_of(
    names, st.just("default"), names.map(lambda name: f"crossencoder({name!r}, max_length=9)")
)


def larger(parts):
    weighed = st.lists(st.tuples(numbers, parts), min_size=2, max_size=3)
    several = st.lists(parts, min_size=2, max_size=3)
    methods = st.sampled_from(
        ["rrf", "rrf(k=10)", "linear", 'linear("z-score")', 'combsum("raw")', "combmnz"]
    )

    def total(terms):
        first, *rest = [weight * part for weight, part in terms]
        return sum(rest, first)

    return st.one_of(
        weighed.map(total),
        st.tuples(several, methods).map(lambda made: made[0][0].fuse(*made[0][1:], method=made[1])),
        st.tuples(weighed, methods).map(
            lambda made: made[0][0][1].fuse(
                *[part for _, part in made[0][1:]], method=made[1], weights=[w for w, _ in made[0]]
            )
        ),
        st.tuples(parts, st.integers(1, 9999)).map(lambda made: made[0] % made[1]),
        st.tuples(parts, rankers, options).map(lambda made: made[0].rerank(made[1], **made[2])),
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(firsts, larger, max_leaves=6))
def test_any_system_reads_back_as_itself(system):
    text = str(system)
    again = rh.system(text)
    assert again == system, text
    assert hash(again) == hash(system)
    assert str(again) == text


# --- faults ----------------------------------------------------------------------------------------------

# text -> where the caret stands (what it stands under), words of the message
FAULTS = {
    "bm26": ("bm26", 'did you mean "bm25"'),
    "bm25 % 10 >> crossencodr('D')": ("crossencodr", 'did you mean "crossencoder"'),
    "bm25 + 0.7 * danse('D')": ("danse", 'did you mean "dense"'),
    "bm25(k1='x')": ("bm25", "a finite number"),
    "rrf(bm25, ql(nu=3))": ("ql", "accepted: ql("),
    "rrf(bm25)": ("rrf", "two systems or more"),
    "rrf(bm25, ql, weights=[1])": ("rrf", "give one each"),
    "linear(bm25, ql, weights='x')": ("'x'", "no list of weights"),
    "linear(bm25, ql, norm='zscore')": ("linear", 'did you mean "z-score"'),
    "bm25 - ql": ("bm25", "they have  >>  +  *  %"),
    "bm25 % 0": ("0", "keep 1 to"),
    "bm25 % 2.5": ("2.5", "keep 1 to"),
    "bm25 % 10**9": ("10**9", "no literal"),
    "bm25 % 99999999999": ("99999999999", "keep 1 to"),
    "bm25 >> bm25": ("bm25", "expected a ranker"),
    "bm25 >> default + ql": ("default", "expected a ranker"),
    "default": ("default", "put what it reads before it"),
    "monot5('D') >> 'x'": ("monot5", "put what it reads before it"),
    "bm25 >> tk(vectors='glove.txt')": ("tk", "train it, and name its folder"),
    "bm25 >> open('D', splt='whole')": ("open", 'is written  open("DIR"'),
    "bm25 >> open('D', split=sentence(3))": ("sentence", 'did you mean "sentences"'),
    "bm25 >> open('D', depth=-1)": ("open", "depth=-1"),
    "bm25 >> open('D', tail='lose')": ("open", "choose from: drop, keep"),
    "bm25(feedback=rm4)": ("rm4", 'did you mean "rm3"'),
    "dense()": ("dense", "is written  dense(RANKER)"),
    "dense('D', 3)": ("dense", "it takes a text"),
    "dense(open('D', depth=3))": ("open", "takes no split"),
    "0.5 * bm25 >> 'D'": ("0.5", "add another to it"),
    "bm25 + ql) % 3": (") % 3", "cannot be read"),
    "'x' * bm25": ("'x'", "no weight"),
    "-1 * bm25 + ql": ("-1", "give 0 or more"),
    "(bm25": ("(", "cannot be read"),
    "bm25 % ": ("", "cannot be read"),
}


def test_faults_say_where_and_what_was_expected():
    for text, (place, words) in FAULTS.items():
        with pytest.raises(rh.RankhouseError) as told:
            rh.system(text)
        reason, line, caret = str(told.value).split("\n")
        assert words in reason, (text, reason)
        column = caret.index("^")
        assert line[column:].startswith(place), (text, line, caret)


HOSTILE = [
    "",
    " ",
    "x" * 100_000,
    "(" * 5_000 + "bm25" + ")" * 5_000,
    "(" * 150 + "bm25" + ")" * 150 + "%",
    "+".join(["bm25"] * 1_900),
    "rrf(" * 300 + "bm25" + ")" * 300,
    "bm25" + " % 10" * 1_500,
    "bm25" + " >> 'a'" * 1_000,
    "-" * 9_000 + "1 * bm25",
    "bm25 % " + "9" * 5_000,
    "bm25(k1=1e999)",
    "bm25(k1=" + "9" * 6_000 + ")",
    "bm25.__class__",
    "bm25.__class__.__mro__[1].__subclasses__()",
    "__import__('os').system('id')",
    "open('/etc/passwd')",
    "(lambda: bm25)()",
    "[bm25 for x in y]",
    "bm25 if ql else jm",
    "bm25 >> (lambda: 0)",
    "bm25 >> open(open)",
    "bm25 >> open('a\\x00b')",
    "bm25 >> open(b'a')",
    "bm25 >> f'{bm25}'",
    "bm25(*[1])",
    "bm25(**{'k1': 1})",
    "bm25 := ql",
    "bm25; ql",
    "bm25 # ) ql +",
    "bm25\x00",
    "bm25 >> '\x1b[31m\x07",
    "dense('\ud800",
    "bm25 + ql\u202e",
    "bm25 @ ql",
    "{bm25: ql}",
    "linear(bm25, ql, weights=[" + "1," * 4_000 + "])",
    "linear(bm25, ql, norm='z-score', weights=[1e400, 1])",
    "linear(bm25, ql, weights=[True, False])",
    "rrf(bm25, ql, k=-5)",
    "rrf(bm25, ql, k=1j)",
    "dense('D', name='../../x', vectors=[[[[1]]]])",
]


def test_hostile_texts_end_with_a_clear_error():
    for text in HOSTILE:
        with pytest.raises(rh.RankhouseError) as told:
            rh.system(text)
        message = str(told.value)
        assert len(message) < 1_000, (text[:40], len(message))
        assert all(one.isprintable() or one == "\n" for one in message), (text[:40], message)


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=40) | st.text("bm25qlrf()%>+*.,='\" 0", max_size=40))
def test_any_text_is_a_system_or_a_clear_error(text):
    with suppress(rh.RankhouseError):
        assert rh.system(str(rh.system(text))) == rh.system(text)


def test_what_is_no_text_is_refused():
    for given_value in (None, 3, ["bm25"]):
        with pytest.raises(rh.RankhouseError, match="a system is of type .*give its notation"):
            rh.system(given_value)
