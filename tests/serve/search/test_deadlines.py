"""A model that is late costs the answer its best order, not the answer."""

import pytest

from rankhouse.serve.errors import DeadlinePassed
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import SearchBody


def ids(answer):
    """Documents of an answer."""
    return [hit.doc_id for hit in answer.hits]


@pytest.mark.parametrize("system", ["cross", "cross+bm25"])
def test_a_late_ranker_leaves_the_first_stage(service, busy, system):
    ranker, asked = service.catalogue.ranker("cross"), "pilots steer ships"
    with busy(ranker) as work:
        answer = search(service.catalogue, SearchBody(query=asked, system=system, deadline_s=0.2))
        assert not work.done()
    assert answer.degraded == "cross did not answer in time: this is the first stage's order"
    assert ids(answer) == ids(search(service.catalogue, SearchBody(query=asked, system="bm25")))
    assert {hit.before for hit in answer.hits} == {None}
    whole = search(service.catalogue, SearchBody(query=asked, system=system, deadline_s=60))
    assert whole.degraded == ""
    assert ids(whole) != ids(answer)
    first = ids(search(service.catalogue, SearchBody(query=asked, system="bm25", k=1000)))
    assert [hit.before for hit in whole.hits] == [first.index(doc_id) + 1 for doc_id in ids(whole)]


def test_a_late_encoder_leaves_the_other_models_or_nothing(service, busy):
    with busy(service.catalogue.ranker("bi")):
        answer = search(service.catalogue, SearchBody(query="high water", system="hybrid", deadline_s=0.1))
        with pytest.raises(DeadlinePassed, match="bi did not answer in time"):
            search(service.catalogue, SearchBody(query="high water", system="dense", deadline_s=0.1))
    assert answer.degraded == "bi did not answer in time: this is the others' order"
    assert ids(answer) == ids(search(service.catalogue, SearchBody(query="high water", system="bm25")))
