"""`serve --system NAME=EXPR`: named expressions, rankers that the service opens, scores as offline."""

import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")

import rankhouse as rh
from rankhouse.core.errors import WrongUse
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions, named_systems
from rankhouse.systems.execution import Execution
from rankhouse.systems.rankers import ComputeOptions

COMPUTE = ComputeOptions("fp32", "cpu", 1)


def test_a_served_expression_answers_as_the_same_expression_in_python(world, running):
    read = f"bm25 % 12 >> {world.specs['cross'][:-1]}, split=words(15), pool=mean)"
    both = f"bm25 + 0.5 * dense({world.specs['bi']})"
    cross = {"ce": world.specs["cross"]}
    systems, rankers = named_systems([f"read={read}", f"both={both}"], cross)
    assert list(rankers) == ["ce", *[name for name in rankers if name != "ce"]]
    assert len(rankers) == 2  # the cross-encoder is served already
    options = ServeOptions({"world": world.index}, rankers, systems=systems, port=0, compute=COMPUTE)
    with running(open_service(options)) as client:
        client.wait(200)
        for name, text in {"read": read, "both": both}.items():
            for query in world.queries:
                body = {"query": query.text, "system": name, "k": 12}
                asked = client.post("/search", body)
                assert asked.status == 200, asked.json
                alone = Execution(world.index, [query], COMPUTE).run(rh.system(text) % 12)[query.id]
                found = [(hit["id"], hit["score"]) for hit in asked.json["hits"]]
                assert found == [(hit.doc_id, pytest.approx(hit.score, abs=1e-6)) for hit in alone]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["bm25"], "NAME=EXPRESSION"),
        (["a=bm25", "a=ql"], "already names another system"),
        (["a=bm52"], "bm25"),
        (["a=bm25 >>"], "a system|expected|ends"),
    ],
)
def test_a_system_without_a_name_or_with_a_fault_is_refused(given, said):
    with pytest.raises(WrongUse, match=said):
        named_systems(given, {})


def test_two_rankers_of_one_short_name_are_told_apart():
    text = "a=bm25 >> crossencoder('one/model') >> crossencoder('two/model')"
    specs, rankers = named_systems([text], {})
    assert rankers == {"model": 'crossencoder("two/model")', "model-2": 'crossencoder("one/model")'}
    assert str(specs[0].system) == 'bm25 >> "model-2" >> "model"'
