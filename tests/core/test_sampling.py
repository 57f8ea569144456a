"""Seeds keep their draws: folds, parts, negatives and samples that people made are made again."""

import numpy as np

from rankhouse.core.sampling import generator, lot, order, passage_lot, short_lot, smallest


def test_lots_are_those_of_all_versions():
    """Made with hashlib as each room did by itself: sha256 of "0\\tq1", blake2b of "0\\tq\\td\\t0" ..."""
    assert (lot(0, "q1").hex()[:12], lot(7, "\u00e9").hex()[:12]) == ("97b82b13faed", "c534c6b79601")
    assert (short_lot(0, "q", "d", 0), short_lot(3, "q", "d", 12)) == (
        14766308053050291941,
        13518954949526295285,
    )
    assert passage_lot(5, "doc", 3).hex() == "7e14bfc0815e794ecbf606e0c034723b"


def test_a_shuffle_does_not_depend_on_the_order_given():
    names = [f"q{number}" for number in range(50)]
    by_lot = sorted(names, key=lambda name: order(1, name))
    names.reverse()
    assert by_lot == sorted(names, key=lambda name: order(1, name)) != names
    assert by_lot != sorted(names, key=lambda name: order(2, name))


def test_the_smallest_lots_win_and_keep_their_places():
    assert smallest(np.array([5, 1, 4, 1, 9], np.uint64), 3).tolist() == [1, 2, 3]
    assert smallest(np.array([5, 1], np.uint64), 9).tolist() == [0, 1]


def test_a_generator_is_numpys_of_seed_and_purpose():
    assert generator(3, 1).random() == np.random.default_rng((3, 1)).random()
