"""Which question a person means: by its id, by its words, among those given and those judged."""

import pytest

from rankhouse.core.nouns import Query
from rankhouse.serve.host.service import Service
from rankhouse.serve.judging.store import JudgementStore

GIVEN = (
    Query("q1", "Who steers ships?"),
    Query("q2", "who steers ships"),
    Query("q3", "!?"),
    Query("q4", " "),
)


@pytest.fixture
def service(tmp_path):
    with_store = JudgementStore(tmp_path / "judged.txt", GIVEN)
    yield Service(judgements=with_store, queries=GIVEN, qrels={"q1": {"a": 2, "b": 0}})
    with_store.close()


@pytest.mark.parametrize(("asked", "wanted"), [
    ("q2", "q2"), ("who steers SHIPS", "q1"), ("q3", "q3"), ("!?", "q3"), ("a lock", None), ("q4", None),
])  # fmt: skip
def test_a_question_is_named_by_its_id_or_its_words(asked, wanted, service):
    made = service.judgements.query_id(asked)
    assert service.question(asked).id == (wanted or made)


def test_a_question_that_was_judged_is_known_by_its_id(service):
    entry = service.judgements.judge("anna", "A lock?", "a", 1)
    assert service.question(entry.query_id) == Query(entry.query_id, "A lock?")
    assert service.question("a LOCK") == Query(entry.query_id, "A lock?")


def test_grades_of_one_question_are_those_given_and_over_them_those_judged(service):
    service.judgements.judge("anna", "Who steers ships?", "a", 1)
    assert service.known_grades("q1") == {"a": 1, "b": 0}
    assert service.known_grades("q9") == {}
