"""The text of a system: Python's precedence, one canonical print that reads back, faults with their place."""

import pickle
import string
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rankhouse as rh
from rankhouse.systems.rankers import source_of
from rankhouse.systems.short_forms import first_stage

# text -> its canonical print
CANONICAL = {
    "bm25": "bm25",
    " bm25( k1 = 0.9,b=0.4 ) ": "bm25",
    "bm25(b=0.5,k1=1.0)": "bm25(k1=1, b=0.5)",
    "bm25(feedback='rm3(terms=10)')": "bm25(feedback=rm3)",
    "bm25(1.2, feedback=rm3(5))": "bm25(k1=1.2, feedback=rm3(terms=5))",
    "ql(form='indri', feedback=rm3)": 'ql(form="indri", feedback=rm3)',
    "jm(lambda=0.1)": "jm",
    "jm(0.2)": "jm(lambda=0.2)",
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
        'bm25 >> crossencoder("D", split=sentences, pool=max)'
    ),
    "bm25>>crossencoder('D',max_length=9,scale='logit')": (
        'bm25 >> crossencoder("D", scale="logit", max_length=9)'
    ),
    "bm25>>crossencoder(path='D',tokenizer=None,depth=3)": 'bm25 >> crossencoder("D", depth=3)',
    "bm25>>open('D',split=sentences(stride=3,size=10),pool=top(k=3))": (
        'bm25 >> open("D", split=sentences(stride=3), pool=top(3))'
    ),
    "bm25>>'f(1)'": 'bm25 >> "f(1)"',
    "bm25>>\"crossencoder('D',depth=3)\"": 'bm25 >> crossencoder("D", depth=3)',
    "bm25>>(see(0.5)>>'D')": 'bm25 >> see(keep=0.5) >> "D"',
    "bm25>>duot5('D',passages=monot5('E'),depth=10)": (
        'bm25 >> duot5("D", passages="monot5(\\"E\\")", depth=10)'
    ),
    "rrf(bm25,ql)": "rrf(bm25, ql)",
    "rrf(bm25,ql,k=10)": "rrf(bm25, ql, k=10)",
    "rrf(bm25,ql,k=60.0)": "rrf(bm25, ql)",
    "linear(bm25,ql,missing='zero',normalise='min-max')": 'linear(bm25, ql, missing="zero")',
    "0*bm25+(0*ql+jm)": "0 * bm25 + 0 * ql + jm",
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


def test_equal_systems_are_equal_values_whatever_was_given():
    ranker = Longest()
    for one, other in [
        ("bm25(k1=0.9, b=0.4)", "bm25"),
        ("bm25(b=0.7, k1=2)", "bm25(2.0, 0.7)"),
        ("rrf(bm25, ql, k=60)", "rrf(bm25, ql)"),
        ("linear(bm25, ql, norm='min-max')", "linear(bm25, ql)"),
        ("bm25 >> open('D', split='sentences(10, 5)')", "bm25 >> open('D', split=sentences)"),
        (
            "bm25 >> causal('D', max_length=9, prompt='x')",
            "bm25 >> causal('D', 'x', max_length=9, scale=None)",
        ),
        ("bm25 >> duot5('D', aggregate='sum', targets=None)", "bm25 >> duot5('D', aggregate='sum')"),
        # defaults that are named by a constant, of the module and of another one
        ("bm25 >> monot5('D', max_length=512)", "bm25 >> monot5('D')"),
        ("bm25 >> monot5('D', prompt=('Query:', 'Document:', 'Relevant:'))", "bm25 >> monot5('D')"),
        ("bm25 >> duot5('D', max_length=512)", "bm25 >> duot5('D')"),
    ]:
        first, second = rh.system(one), rh.system(other)
        assert first == second, one
        assert hash(first) == hash(second)
        assert str(first) == str(second)
        assert first % 5 >> ranker == second % 5 >> ranker
    assert rh.system("bm25(k1=0.9, b=0.41)") != rh.system("bm25")


def test_what_is_recorded_keeps_the_text_that_was_given():
    given = (
        "rrf(bm25(b=0.4), jm(lambda=0.1), k=60) % 9"
        ' >> crossencoder("D", tokenizer=None, split=sentences(10, 5))'
    )
    for system in (rh.system(given), pickle.loads(pickle.dumps(rh.system(given)))):
        assert system.given == given
        assert str(system) == 'rrf(bm25, jm) % 9 >> crossencoder("D", split=sentences)'
        assert system.fuse(rh.system("bm25()")).given == f"rrf({given}, bm25)"


def test_a_ranker_in_python_is_what_it_is_in_the_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bm25 = rh.system("bm25")
    for text in ("see(0.5) >> 'D'", "see(keep=0.5) >> crossencoder('D', depth=3)", "open('D')", "default"):
        assert bm25 >> text == rh.system(f"bm25 >> {text}")
    for text in ("monot5", "crossencoder('D', dept=3)", "see(0.5)", "see(0.5) >> bm25"):
        with pytest.raises(rh.RankhouseError) as told:
            bm25 >> text
        with pytest.raises(rh.RankhouseError) as written:
            rh.system(f"bm25 >> {text}")
        assert str(told.value).split("\n")[0] == str(written.value).split("\n")[0]
    for text in ("", " "):
        with pytest.raises(rh.RankhouseError, match="name is empty"):
            bm25 >> text
    (tmp_path / "monot5").mkdir()
    assert bm25 >> "monot5" == rh.system("bm25 >> monot5") == rh.system('bm25 >> "monot5"')


def test_numbers_of_numpy_cut_and_weigh():
    bm25, ql = rh.system("bm25"), rh.system("ql")
    assert bm25 % np.int64(5) == bm25 % 5
    assert type((bm25 % np.int32(5)).k) is int
    assert np.float32(0.5) * bm25 + np.int64(2) * ql == 0.5 * bm25 + 2 * ql == bm25 * np.float64(0.5) + ql * 2
    for wrong in (np.bool(True), True, np.float64(5), 0, "5"):
        with pytest.raises(rh.RankhouseError, match="keep 1 to"):
            bm25 % wrong


def test_sums_read_back_whatever_their_length_and_order():
    addends = [rh.system(f"bm25(k1={1 + place / 100})") for place in range(66)]
    long = sum(addends[1:], addends[0])
    assert rh.system(str(long)) == long
    one, other, third = (rh.system(name) for name in ("bm25", "ql", "jm"))
    for total in (0 * one + (0 * other + third), 0 * one + 0 * other + third):
        assert rh.system(str(total)) == total
    for use in (
        lambda: (0 * one + 0 * other) % 5,
        lambda: 0 * one + 0 * other >> "D",
        lambda: one.fuse(0 * other),
    ):
        with pytest.raises(rh.RankhouseError, match="not all 0|add another"):
            use()
    with pytest.raises(rh.RankhouseError, match="500 at most"):
        sum([one] * 500, one)


def test_only_systems_are_fused():
    with pytest.raises(rh.RankhouseError, match=r'give a System, such as rh\.system\("ql"\)'):
        rh.system("bm25").fuse("ql")


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
    "rrf(bm25, ql": ("(", "never closed"),
    "rrf(bm25, ql(nu=3))": ("nu=3", "known: mu, form"),
    "bm25(k2=1)": ("k2=1", "known: k1, b"),
    "bm25(feedbck=rm3)": ("feedbck", 'did you mean "feedback"'),
    "bm25(feedback=rm3(term=5))": ("term=5", 'did you mean "terms"'),
    "rrf(bm25, ql, kk=3)": ("kk=3", 'did you mean "k"'),
    "linear(bm25, ql, weigths=[1, 2])": ("weigths", 'did you mean "weights"'),
    "linear(bm25, ql, mising='zero')": ("mising", 'did you mean "missing"'),
    "dense('D', nam='x')": ("nam=", 'did you mean "name"'),
    "rrf(bm25)": ("rrf", "two systems or more"),
    "rrf(bm25, ql, weights=[1])": ("rrf", "give one each"),
    "linear(bm25, ql, weights='x')": ("'x'", "no list of weights"),
    "linear(bm25, ql, norm='zscore')": ("'zscore'", 'did you mean "z-score"'),
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
    "bm25 >> open('D', splt='whole')": ("splt", 'did you mean "split"'),
    "bm25 >> crossencoder('D', dept=3)": ("dept", 'did you mean "depth"'),
    "bm25 >> crossencoder('D', max_lenght=3)": ("max_lenght", 'did you mean "max_length"'),
    "bm25 >> duot5('D', agregate='sum')": ("agregate", 'did you mean "aggregate"'),
    "bm25 >> open('D', split=sentences(sise=3))": ("sise", 'did you mean "size"'),
    "bm25 >> monot5": ("monot5", 'expected  monot5("DIR")'),
    "bm26 >> 'D'": ("bm26", "(bm25, bm25f, ql, jm, impact, dense, sparse)"),
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
    "(bm25": ("(", "never closed"),
    "bm25 % ": ("", "the number of documents to keep"),
    "bm25 >> ": ("", "expected a ranker"),
    "bm25(k1=)": (")", "expected a finite number"),
    "bm25 >> open('D', tail=drop)": ("drop", 'a text is written "drop"'),
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


def test_the_source_of_impacts_is_the_encoder_as_it_was_given():
    """It is compared with what manifests hold, also those of earlier versions."""
    for given_text in ('sparse("DIR", tokenizer="t", max_length=8)', 'sparse("DIR", allow_pickle=False)'):
        ranker = rh.system(f"sparse({given_text})").ranker
        assert source_of(ranker) == given_text != ranker
        assert rh.system(f"sparse({given_text})").given == f"sparse({given_text})"
        assert msgspec.json.decode(msgspec.json.encode(source_of(ranker))) == given_text


def test_equal_systems_are_pickled_by_every_protocol_with_the_text_given():
    held = rh.system("bm25(b=0.3, k1=0.9) >> crossencoder('DIR', max_length=9.0)")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        again = pickle.loads(pickle.dumps(held, protocol))
        assert (again, again.given) == (held, held.given)


def test_a_long_name_is_shortened_where_it_is_refused():
    with pytest.raises(rh.RankhouseError, match='"x{200}" is not a known model') as told:
        first_stage("x" * 10_000)
    assert len(str(told.value)) < 500
