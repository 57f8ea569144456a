"""No table of notations takes an argument of the wrong type; WrongUse shows it and what is accepted."""

import inspect
from contextlib import contextmanager, suppress

import pytest

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.notation import Spec, make
from rankhouse.index.dense.faiss import STRUCTURES
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.labels.candidates import NEGATIVES
from rankhouse.labels.rule_notation import Openers, rules
from rankhouse.models.families import DESIGNS, PUBLISHED
from rankhouse.nn.layers.tk_encoder import TKSelfAttention
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.ranking.pool import POOLS
from rankhouse.systems.system import Dense
from rankhouse.text.analyze import ANALYZERS
from rankhouse.text.split import SPLITTERS
from rankhouse.text.words import WORDS
from rankhouse.training import tuning
from rankhouse.training.examples import NEGATIVES as SOURCES
from rankhouse.training.optimizer import OPTIMISERS, SCHEDULES

TABLES = {
    "model": WEIGHTINGS,
    "dense": {"dense": Dense},
    "feedback": FEEDBACKS,
    "fusion": FUSIONS,
    "way": tuning._OTHERS,
    "pool": POOLS,
    "splitter": SPLITTERS,
    "words": WORDS,
    "analyzer": ANALYZERS,
    "structure": STRUCTURES,
    "negatives": NEGATIVES,
    "source": SOURCES,
    "design": DESIGNS,
    "published": PUBLISHED,
    "optimiser": OPTIMISERS,
    "schedule": SCHEDULES,
    "rule": rules(Openers()),
}
# Of each Python type a value that no parameter of another type may take; 10**400 is beyond every float.
ODD = (b"x", {"a": 1}, {1}, 1j, ..., float("nan"), float("inf"), 10**400, [[1]], [None], (1, 2, 3, "x"))
PLAIN = {"'x'": "x", "1.5": 1.5, "7": 7, "True": True, "None": None}

STRANGE = (-1, 0, 2**62, -(2**62), 1e300, -1e-300, "", "\0", "x" * 200, (), [0, -1])
WRONG = {
    "str": ("7", "1.5", "True"),
    "int": ("'x'", "1.5", "True"),
    "float": ("'x'", "True"),
    "bool": ("'x'", "7", "1.5"),
}


def specs(what, values):
    """From a table to each name and parameter of it, with each value as that parameter."""
    for name, factory in TABLES[what].items():
        for parameter in inspect.signature(factory).parameters.values():
            for value in values(parameter):
                yield name, parameter, value, spec(name, factory, parameter, value)


@contextmanager
def named(name, parameter, value):
    """Name the parameter and its value in whatever fails inside."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        raise AssertionError(f"{name}({parameter.name}={value!r}): {error}") from error


def spec(name, factory, parameter, value):
    """Put a value in a parameter's place, and something of its kind wherever else something is required."""
    others = [p for p in inspect.signature(factory).parameters.values() if p.default is p.empty]
    if parameter.kind is parameter.VAR_POSITIONAL:
        return Spec(name, (value,))
    filled = {"str": "nothing-there", "int": 3, "float": 0.5}
    needed = {p.name: filled[p.annotation] for p in others if p.kind is not p.VAR_POSITIONAL}
    return Spec(name, (), needed | {parameter.name: value})


def words_of(parameter):
    return set(str(parameter.annotation).replace("|", " ").split())


def wrong_kinds(parameter):
    """Return the plain values that a parameter of one plain type does not take."""
    said = words_of(parameter)
    kinds = [kind for kind in WRONG if kind in said]
    if len(kinds) != 1 or "tuple" in str(parameter.annotation):
        return []
    return [PLAIN[shown] for shown in (*WRONG[kinds[0]], *(() if "None" in said else ("None",)))]


@pytest.mark.parametrize("what", TABLES)
def test_no_parameter_takes_a_value_of_no_type_of_the_notation(what):
    for name, parameter, value, wrong in specs(what, lambda _: ODD):
        message = rf"{parameter.name.rstrip('_')}=.*, but it takes .*; accepted: {name}\("
        with named(name, parameter, value), pytest.raises(WrongUse, match=message):
            make(wrong, TABLES[what], what)


@pytest.mark.parametrize("what", TABLES)
def test_a_number_is_no_text_and_a_text_is_no_number(what):
    for name, parameter, value, wrong in specs(what, wrong_kinds):
        with named(name, parameter, value), pytest.raises(WrongUse, match="takes"):
            make(wrong, TABLES[what], what)


@pytest.mark.quick("design", "rule")
@pytest.mark.parametrize("what", TABLES)
def test_a_strange_value_is_accepted_or_refused_in_words(what):
    for name, parameter, value, strange in specs(what, lambda _: STRANGE):
        with named(name, parameter, value), suppress(RankhouseError):  # and nothing else may come
            make(strange, TABLES[what], what)


@pytest.mark.parametrize(
    ("text", "table", "shown"),
    [
        ('bm25(k1="x")', "model", "'x'"),
        ("bm25(k1=1e999)", "model", "inf"),
        ("bm25(k1=-1)", "model", "-1"),
        ("bm25(k1=1e30)", "model", "at most 10,000"),
        ("ql(mu=1e300)", "model", "1e9"),
        ("rm3(terms=1.5)", "feedback", "1.5"),
        ("rm3(common=-3.0)", "feedback", "-3"),
        ('rrf(k="a")', "fusion", "'a'"),
        ("linear([1])", "fusion", r"\[1\]"),
        ("depth('a')", "way", "'a'"),
        ("depth(-1)", "way", "-1"),
        ("sentences(step=0)", "way", "0"),
        ("knrm(width='a')", "design", "'a'"),
        ("knrm(width=99999999999)", "design", "99999999999"),
        ("knrm(words='no such')", "design", "no such"),
        ("tk(heads=5)", "design", "heads=5, attention_width=32"),
        ("tk(width=7)", "design", "width=7"),
        ("tk(layers=-1)", "design", "layers=-1"),
        ("crossencoder(5)", "published", "5"),
        ("sum(5)", "pool", "5"),
        ("adam(betas=(2, 0.9))", "optimiser", "2"),
        ("sgd(momentum=-1.0)", "optimiser", "-1"),
        ("adamw(eps=-1.0)", "optimiser", "-1"),
    ],
)
def test_what_used_to_end_in_a_traceback(text, table, shown):
    with pytest.raises(WrongUse, match=shown):
        make(text, TABLES[table], table)


def test_what_is_accepted_is_written_as_people_write_it():
    with pytest.raises(WrongUse, match=r"accepted: jm\(lambda=0.1\)$"):
        make("jm(lambda='x')", WEIGHTINGS, "model")
    with pytest.raises(WrongUse, match=r"attention=5, but it takes 'query' or 'position' or None"):
        make("samcnn(attention=5)", DESIGNS, "ranker")


def test_whole_numbers_stand_for_numbers_and_lists_for_tuples():
    assert make("bm25(k1=1)", WEIGHTINGS, "model").notation == "bm25(k1=1, b=0.4)"
    assert make("tk(windows=[3, 4])", DESIGNS, "ranker").windows == (3, 4)


def test_heads_cannot_be_more_than_a_words_numbers():
    with pytest.raises(WrongUse, match="16 heads need"):
        TKSelfAttention(7, 16, 32)
