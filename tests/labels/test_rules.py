"""The algebra of rules: laws on values, who is asked what, and how rules are written and read."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, BadModel, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.core.scores import probabilities
from rankhouse.labels.leaf_rules import judged, judges, non_relevant, ranked, taught, teachers
from rankhouse.labels.rule_notation import Openers, read

PAIRS = [
    Pair(Query(f"q{q}", f"question {q}"), Passage(f"d{d}", p, f"text {q} {d} {p}"))
    for q in range(3)
    for d in range(4)
    for p in range(2)
]
QRELS = {"q0": {"d0": 1, "d1": 2, "d2": 0, "d3": -1}, "q1": {"d3": 1}, "passages": {}}
BY_PASSAGE = {"q0": {"d0#1": 1, "d2#0": 1}, "q2": {"d1#1": 3}}
RUN = Run.of((f"q{q}", f"d{d}", float((q + d) % 4)) for q in range(2) for d in range(4))


class Noted:
    """A teacher whose probability is a fixed number for each pair; notes what it is asked."""

    scale = "probability"

    def __init__(self, seed):
        self.fingerprint, self.seed, self.asked = f"noted-{seed}", seed, []

    def score(self, pairs):
        self.asked += [(q.id, p.doc_id, p.index) for q, p in pairs]
        return np.array([self.value(pair) for pair in pairs], np.float32)

    def value(self, pair):
        number = int(pair.query.id[1:]) * 8 + int(pair.passage.doc_id[1:]) * 2 + pair.passage.index
        return ((number + self.seed) * 37 % 101) / 100


def leaf(name, teachers_made):
    match name:
        case 0:
            return judged(QRELS, name="qrels.txt")
        case 1:
            return judged(BY_PASSAGE, by="passage", name="passages.txt")
        case 2:
            return ranked(RUN, 2, "bm25.run")
        case _:
            if name not in teachers_made:
                teachers_made[name] = Noted(name)
            return taught(teachers_made[name], 0.5, name=f"teacher-{name}")


SHAPES = st.recursive(
    st.integers(0, 5),
    lambda inner: st.one_of(
        st.tuples(st.just("~"), inner), st.tuples(st.sampled_from("&|"), inner, inner)
    ),
    max_leaves=6,
)  # fmt: skip


def build(shape, teachers_made):
    if isinstance(shape, int):
        return leaf(shape, teachers_made)
    sign, *parts = shape
    made = [build(part, teachers_made) for part in parts]
    return ~made[0] if sign == "~" else made[0] & made[1] if sign == "&" else made[0] | made[1]


def answered(shape):
    """Labels of a rule, and the pairs that its teachers read."""
    made = {}
    answers = build(shape, made)(PAIRS)
    return answers.tolist(), {name: one.asked for name, one in made.items()}


def plainly(shape):
    """The same rule by plain Python, pair by pair."""
    if isinstance(shape, int):
        return leaf(shape, {})(PAIRS).tolist()
    sign, *parts = shape
    if sign == "~":
        return [not a for a in plainly(parts[0])]
    both = zip(plainly(parts[0]), plainly(parts[1]), strict=True)
    return [(a and b) if sign == "&" else (a or b) for a, b in both]


def test_a_judge_says_yes_from_a_grade_on_and_what_is_unjudged_is_not_relevant():
    assert [p.passage.doc_id for p, y in zip(PAIRS[:8], judged(QRELS)(PAIRS), strict=False) if y] == [
        "d0", "d0", "d1", "d1"]  # fmt: skip
    assert judged(QRELS, at_least=2)(PAIRS).sum() == 2
    assert judged(QRELS, at_least=0)(PAIRS).sum() == 8  # three documents of q0, one of q1, two passages each
    assert not judged({})(PAIRS).any()


def test_judgements_of_passages_are_looked_up_by_document_and_number():
    yes = [
        (p.query.id, p.passage.doc_id, p.passage.index)
        for p, y in zip(PAIRS, judged(BY_PASSAGE, by="passage")(PAIRS), strict=True)
        if y
    ]
    assert yes == [("q0", "d0", 1), ("q0", "d2", 0), ("q2", "d1", 1)]


def test_judgements_of_documents_are_no_judgements_of_passages():
    with pytest.raises(BadData, match=r"none of its ids names a passage.*d#3.*the first is \"d1\""):
        judged({"q1": {"d1": 1, "d#x": 1}}, by="passage", name="qrels.txt")
    judged({"q1": {"d1": 1, "d1#0": 1}}, by="passage")  # some do
    judged({}, by="passage")


def test_a_run_says_yes_to_all_passages_of_its_first_k_documents():
    answers = ranked(RUN, 1)(PAIRS)
    assert [(p.query.id, p.passage.doc_id) for p, y in zip(PAIRS, answers, strict=True) if y] == [
        ("q0", "d3"), ("q0", "d3"), ("q1", "d2"), ("q1", "d2")]  # fmt: skip
    assert not answers[16:].any()  # a query that the run does not have


def test_a_teacher_says_yes_from_its_threshold_on():
    teacher = Noted(0)
    values = teacher.score(PAIRS)
    for threshold in (0.0, float(values[3]), 1.0):
        assert taught(teacher, threshold)(PAIRS).tolist() == [float(v) >= threshold for v in values]


@pytest.mark.parametrize(
    ("scale", "scores"),
    [("logit", [-1.0, -1e-4, 0.0, 2.0]), ("logprob", np.log([0.1, 0.4999, 0.5001, 0.9])),
     ("probability", [0.1, 0.49, 0.5, 1.0])],
)  # fmt: skip
def test_a_threshold_is_a_probability_on_every_scale_that_has_one(scale, scores):
    class PassageFile:
        def score(self, pairs):
            return np.asarray(scores, np.float32)

    given_ranker = PassageFile()
    given_ranker.scale = scale
    assert taught(given_ranker)(PAIRS[:4]).tolist() == [False, False, True, True]


def test_a_threshold_is_compared_with_the_score_itself_where_there_is_no_probability():
    class Cosine:
        scale = "similarity"

        def score(self, pairs):
            return np.array([-0.2, 0.69, 0.71], np.float32)

    assert taught(Cosine(), 0.7)(PAIRS[:3]).tolist() == [False, False, True]
    assert taught(Cosine(), -3.0)(PAIRS[:3]).all()


def test_extreme_logits_become_probabilities_without_a_warning():
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        values = probabilities(np.array([-1e30, -90.0, 0.0, 90.0, np.inf], np.float32), "logit")
    assert values[2] == 0.5
    assert (np.diff(values[1:4]) > 0).all()
    assert values[[0, 4]].tolist() == [0.0, 1.0]


@settings(max_examples=150, deadline=None)
@given(SHAPES)
def test_rules_answer_like_plain_python(shape):
    assert answered(shape)[0] == plainly(shape)


@settings(max_examples=80, deadline=None)
@given(SHAPES, SHAPES)
def test_de_morgan_holds_and_asks_the_same(a, b):
    assert answered(("~", ("&", a, b))) == answered(("|", ("~", a), ("~", b)))
    assert answered(("~", ("|", a, b))) == answered(("&", ("~", a), ("~", b)))
    assert answered(("~", ("~", a))) == answered(a)


@settings(max_examples=80, deadline=None)
@given(SHAPES, SHAPES, SHAPES)
def test_joining_is_associative_and_distributes(a, b, c):
    assert answered(("&", ("&", a, b), c)) == answered(("&", a, ("&", b, c)))
    assert answered(("|", ("|", a, b), c)) == answered(("|", a, ("|", b, c)))
    assert answered(("&", a, ("|", b, c)))[0] == answered(("|", ("&", a, b), ("&", a, c)))[0]


@settings(max_examples=100, deadline=None)
@given(SHAPES)
def test_what_is_written_reads_back_as_the_same_value(shape):
    made = {}
    rule = build(shape, made)
    opened = {"qrels.txt": QRELS, "passages.txt": BY_PASSAGE}
    again = read(
        str(rule),
        Openers(opened.__getitem__, {"bm25.run": RUN}.__getitem__, lambda n: made[int(n.split("-")[1])]),
    )
    assert again == rule
    assert hash(again) == hash(rule)
    assert str(again) == str(rule)
    assert again.identity == rule.identity


def test_and_asks_the_right_side_only_where_the_left_said_yes():
    teacher = Noted(0)
    (judged(QRELS) & taught(teacher))(PAIRS)
    assert teacher.asked == [(q, d, p) for q, d in (("q0", "d0"), ("q0", "d1"), ("q1", "d3")) for p in (0, 1)]


def test_or_asks_the_right_side_only_where_the_left_said_no():
    teacher = Noted(0)
    (judged(QRELS) | taught(teacher))(PAIRS)
    assert len(teacher.asked) == len(PAIRS) - 6


def test_a_teacher_named_twice_reads_each_pair_once():
    teacher = Noted(0)
    (taught(teacher, 0.9) | (judged(QRELS) & taught(teacher, 0.2)) | ~taught(teacher, 0.1))(PAIRS)
    assert sorted(teacher.asked) == sorted((p.query.id, p.passage.doc_id, p.passage.index) for p in PAIRS)


def test_a_rule_nobody_needs_to_ask_does_not_call_its_teacher():
    class Dead:
        scale = "logit"

        def score(self, pairs):
            raise AssertionError

    assert not (judged({}) & taught(Dead()))(PAIRS).any()
    assert (~judged({}) | taught(Dead()))(PAIRS).all()
    assert taught(Dead())([]).tolist() == []


def test_negatives_come_from_what_no_judge_affirms():
    a, b, t = judged(QRELS, name="a"), judged(BY_PASSAGE, by="passage", name="b"), taught(Noted(0), name="t")
    assert str(non_relevant(a & t)) == "~judged('a')"
    assert str(non_relevant((a | b) & t)) == "~judged('a') & ~judged('b', by='passage')"
    assert str(non_relevant(t)) == "~taught('t', threshold=0.5)"
    assert str(non_relevant(t & ~a)) == "~(taught('t', threshold=0.5) & ~judged('a'))"
    assert str(non_relevant(~(~a | t))) == "~judged('a')"
    assert (judges(a & a & b), teachers(a & t | t)) == ([a, b], [t])


def test_contents_tell_rules_apart_and_names_do_not():
    same = {query_id: dict(reversed(found.items())) for query_id, found in reversed(QRELS.items())}
    assert judged(QRELS, name="a").identity == judged(same, name="b").identity
    assert judged(QRELS).identity != judged(QRELS | {"q9": {"d": 1}}).identity
    assert judged(QRELS).identity != judged(QRELS, 2).identity
    assert judged(BY_PASSAGE).identity != judged(BY_PASSAGE, by="passage").identity
    assert ranked(RUN, 2).identity != ranked(RUN, 3).identity
    assert taught(Noted(1)).identity != taught(Noted(2)).identity
    assert taught(Noted(1)).identity != taught(Noted(1), 0.6).identity
    assert taught(Noted(1)).identity != taught(Noted(1), best=3).identity
    assert str(taught(Noted(1), name="t", best=3)) == "taught('t', threshold=0.5, best=3)"
    assert str(judged(QRELS)) == str(judged(same))


def test_an_unknown_rule_is_refused_with_the_list_and_the_place():
    with pytest.raises(WrongUse) as caught:
        read('judged("é.txt") & (jugded("x"))', Openers(qrels=lambda _: QRELS))
    lines = str(caught.value).splitlines()
    assert '"jugded" is not a known rule (did you mean "judged"?)' in lines[0]
    assert "choose from: judged, ranked, taught" in lines[0]
    assert "(character 20)" in lines[0]
    assert lines[2].index("^") == lines[1].index("jugded")


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ('judged("a") & ', 14, "cannot be read"),
        ('judged("a" & x', 7, "never closed"),
        ('judged("a")) & x', 12, "unmatched"),
        ('judged("a") and judged("b")', 1, "joined with & | ~"),
        ('not judged("a")', 1, "joined with & | ~"),
        ('judged("a") & 3', 15, "something else"),
        ('judged("a") ^ judged("b")', 1, "something else"),
        ('judged("a")[0]', 1, "something else"),
        ('judged("a") | judged()', 15, "accepted: judged(qrels, at_least=1, by='document')"),
        ('~ranked("a", 1, depth=3)', 2, "unexpected keyword argument 'depth'"),
        ("judged(3)", 1, "qrels=3, but it takes a text in quotes"),
        ('judged("a", at_least="x")', 1, "at_least='x', but it takes a whole number"),
        ('judged("a", by="word")', 1, 'choose "document" or "passage"'),
        ('ranked("a", 0)', 1, "a whole number from 1 up"),
        ('judged("a") & taught("t", threshold=3)', 15, "a probability from 0 to 1"),
        ('taught("t", scale="percent")', 1, "choose from: logit, probability, logprob"),
        ('taught("t", threshold="high")', 1, "threshold='high', but it takes a finite number"),
        ('taught("t", best=0)', 1, "from 1 up"),
        ('judged(open("a"))', 1, "cannot be read"),
    ],
)
def test_a_faulty_rule_is_refused_with_the_place_and_the_reason(text, place, reason):
    openers = Openers(lambda _: QRELS, lambda _: RUN, lambda _: Noted(0))
    with pytest.raises(WrongUse) as caught:
        read(text, openers)
    assert reason in str(caught.value)
    assert f"(character {place}):" in str(caught.value)


def test_an_empty_rule_and_a_bottomless_one_are_refused():
    with pytest.raises(WrongUse, match="the rule is empty"):
        read(" \n ")
    with pytest.raises(WrongUse, match="cannot be read"):
        read("(" * 5000 + 'judged("a")' + ")" * 5000)


def test_nothing_is_opened_before_the_whole_rule_is_understood():
    opened = []
    with pytest.raises(WrongUse):
        read('judged("a") & tought("b")', Openers(qrels=lambda name: opened.append(name) or QRELS))
    assert opened == []


def test_a_name_used_twice_is_opened_once_and_lines_may_be_broken():
    opened = []

    def ranker(name):
        opened.append(name)
        return Noted(0)

    rule = read('taught("t", 0.9)\n  | taught("t", 0.1)', Openers(ranker=ranker))
    assert opened == ["t"]
    assert len({id(one.ranker) for one in teachers(rule)}) == 1


def test_rankers_need_an_opener_and_files_must_be_there(tmp_path):
    with pytest.raises(WrongUse, match="no function opens rankers"):
        read('taught("DIR")')
    with pytest.raises(MissingInput, match="there is no such file"):
        read(f"judged({str(tmp_path / 'none.txt')!r})")


def test_a_teacher_without_a_scale_is_asked_to_say_one():
    class Mute:
        def score(self, pairs):
            return np.zeros(len(pairs), np.float32)

    with pytest.warns(RankhouseWarning, match="declares no scale"):
        taught(Mute())
    taught(Mute(), scale="logit")
    taught(Mute(), 7.0, scale="score")


@pytest.mark.parametrize(
    ("scores", "reason"),
    [([0.1, np.nan, 0.3], 'passage 1 of document "d0" for query "q0" is not a number'),
     ([0.1, 0.2], r"asked for 3 scores and gave an array of shape \(2,\)"),
     ([0.1, 1.7, 0.2], 'declares scale "probability" but gave 1.7')],
)  # fmt: skip
def test_what_is_no_score_is_refused(scores, reason):
    class Broken:
        scale = "probability"

        def score(self, pairs):
            return np.array(scores, np.float32)

    with pytest.raises(BadModel, match=reason):
        taught(Broken())(PAIRS[:3])
