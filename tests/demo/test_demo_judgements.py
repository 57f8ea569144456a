"""The demo's questions and judgements hold together, on every Python they are used with."""

from collections import Counter

import pytest

from rankhouse.demo.run import JUDGEMENTS, QUESTIONS, SHOWN, collect
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels


@pytest.fixture(scope="module")
def qrels():
    return read_qrels(JUDGEMENTS)


@pytest.fixture(scope="module")
def questions():
    return {question.id: question.text for question in read_queries(str(QUESTIONS))}


@pytest.fixture(scope="module")
def names():
    return {document.id for document in collect()}


def test_there_are_at_least_seventy_distinct_questions(questions):
    assert len(questions) >= 70
    assert len(set(questions.values())) == len(questions)


def test_every_question_is_judged_and_nothing_else(questions, qrels):
    assert set(qrels) == set(questions)
    assert set(SHOWN) <= set(questions)


def test_grades_are_nought_one_or_two(qrels):
    grades = Counter(grade for judged in qrels.values() for grade in judged.values())
    assert set(grades) == {0, 1, 2}
    assert grades[0] > grades[1] > grades[2] > len(qrels)


@pytest.mark.slow
def test_every_question_has_an_answer_in_this_python(qrels, names):
    without = [q for q, judged in qrels.items() if not any(g == 2 and d in names for d, g in judged.items())]
    assert without == []


def test_few_judgements_are_about_names_this_python_does_not_have(qrels, names):
    pairs = [(d in names, grade) for judged in qrels.values() for d, grade in judged.items()]
    assert sum(not here for here, _ in pairs) < 0.08 * len(pairs)
    assert sum(not here and grade > 0 for here, grade in pairs) < 10
