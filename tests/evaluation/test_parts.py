"""Queries dealt into parts without a common product."""

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.evaluation.folds import divide, products

KEYS = st.dictionaries(
    st.integers(0, 40).map("q{}".format), st.sets(st.integers(0, 25).map("d{}".format), max_size=3)
)
THREE = {"first": 0.5, "second": 0.25, "test": 0.25}


@given(KEYS)
@settings(max_examples=100, deadline=None)
def test_products_are_the_connected_components(keys):
    graph = nx.Graph()
    graph.add_nodes_from(keys)
    graph.add_edges_from((query, f"key {key}") for query, own in keys.items() for key in own)
    expected = {
        frozenset(n for n in component if not n.startswith("key "))
        for component in nx.connected_components(graph)
    }
    groups = products(keys)
    assert set(map(frozenset, groups)) == expected
    order = {query_id: place for place, query_id in enumerate(keys)}
    assert all(list(queries) == sorted(queries, key=order.get) for queries in groups)
    assert groups == sorted(groups, key=lambda queries: order[queries[0]])


@given(KEYS, st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_every_query_has_one_part_and_no_product_two(keys, seed):
    if len(products(keys)) < 3:
        return
    parts = divide(keys, THREE, seed)
    assert list(parts) == list(THREE)
    assert sorted(q for part in parts.values() for q in part) == sorted(keys)
    of = {query: name for name, part in parts.items() for query in part}
    for queries in products(keys):
        assert len({of[query] for query in queries}) == 1


def test_shares_are_kept_for_both_kinds_of_queries():
    keys = {f"q{i}": [f"d{i}"] for i in range(400)}
    matched = [f"q{i}" for i in range(100)]
    parts = divide(keys, THREE, 3, even=matched)
    assert {name: len(part) for name, part in parts.items()} == {"first": 200, "second": 100, "test": 100}
    assert {n: len(set(p) & set(matched)) for n, p in parts.items()} == {
        "first": 50,
        "second": 25,
        "test": 25,
    }


def test_the_dealing_depends_on_the_seed_and_not_on_the_order():
    keys = {f"q{i}": [f"d{i // 2}"] for i in range(60)}
    turned = dict(reversed(keys.items()))
    assert divide(keys, THREE, 1) == divide(turned, THREE, 1)
    assert divide(keys, THREE, 1) != divide(keys, THREE, 2)


@pytest.mark.parametrize("shares", [{}, {"a": 0.5, "b": 0.4}, {"a": 1.5, "b": -0.5}, {"a": 1, "b": 0}])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(WrongUse, match="together they are 1"):
        divide({"q1": [], "q2": []}, shares)


def test_fewer_products_than_parts_are_refused():
    with pytest.raises(BadData, match="2 queries of 1 products cannot fill 3 parts"):
        divide({"q1": ["d"], "q2": ["d"]}, THREE)
