"""Measures: trec_eval's numbers to the last digit, and clear words where there are none."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.qrels import restrict
from rankhouse.core.run import Run
from rankhouse.evaluation.measure_notation import known, parse, provider_of
from rankhouse.evaluation.measures import evaluate, scorer
from rankhouse.io.trec import read_qrels, read_run

GOLDEN = Path(__file__).parents[1] / "golden"
QRELS = read_qrels(GOLDEN / "trec_eval_qrels.txt")
RUN = read_run(GOLDEN / "trec_eval_run.txt")
RESULTS = json.loads((GOLDEN / "trec_eval_results.json").read_text())["command_results"]

NAMES = {
    "map": "AP",
    "Rprec": "Rprec",
    "bpref": "Bpref",
    "recip_rank": "RR",
    "infAP": "infAP",
    "ndcg": "nDCG",
    "set_P": "SetP",
    "set_relative_P": "SetRelP",
    "set_recall": "SetR",
    "set_map": "SetAP",
    "set_F": "SetF",
    "num_ret": "NumRet",
    "num_rel_ret": "NumRelRet",
}
CUT = {
    "P": "P",
    "recall": "R",
    "ndcg_cut": "nDCG",
    "map_cut": "AP",
    "success": "Success",
    "iprec_at_recall": "IPrec",
}
needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="ERR is computed by a Perl program")
NOT_OFFERED = re.compile(r"gm_map|Rprec_mult_.*|11pt_avg|num_q|num_rel")


def in_our_notation(trec_name, **parameters):
    stem, _, cut = trec_name.rpartition("_")
    name, at = (NAMES[trec_name], "") if trec_name in NAMES else (CUT[stem], f"@{cut}")
    if name == "nDCG":
        parameters.pop("rel", None)
    inside = ", ".join(f"{key}={value}" for key, value in parameters.items())
    return str(parse(f"{name}({inside}){at}" if inside else name + at)[0])


# Command line of trec_eval -> the run, the judgements and the parameters that say the same here.
COMMANDS = {
    "-q -m all_trec": (RUN, restrict(QRELS, RUN), {}),
    "-c -q -m all_trec": (RUN, QRELS, {}),
    "-q -l 2 -m map -m recip_rank -m P -m ndcg_cut -m recall": (RUN, restrict(QRELS, RUN), {"rel": 2}),
    "-q -M 10 -m recip_rank -m map -m ndcg": (RUN.top(10), restrict(QRELS, RUN), {}),
    "-q -J -m map -m P -m ndcg_cut": (RUN, restrict(QRELS, RUN), {"judged_only": True}),
}


@pytest.mark.parametrize("command", RESULTS)
def test_every_number_of_trec_eval_is_met_to_the_last_digit(command):
    run, qrels, parameters = COMMANDS[command]
    asked = {
        name: in_our_notation(name, **parameters)
        for name in RESULTS[command]["all"]
        if not NOT_OFFERED.fullmatch(name)
    }
    scores = evaluate(run, qrels, asked.values())
    compared = 0
    for query_id, wanted in RESULTS[command].items():
        for name, measure in asked.items():
            if query_id == "all" and name.startswith("num_"):
                found = scores.of(measure).sum()
            else:
                found = scores.mean(measure) if query_id == "all" else scores.per_query[query_id][measure]
            digits = f"{found:.0f}" if name.startswith("num_") else f"{found:.4f}"
            assert digits == wanted[name], f"{command}: {name} of {query_id}"
            compared += 1
    assert compared == len(asked) * 8


def test_all_commands_of_the_golden_file_are_compared():
    assert set(COMMANDS) == set(RESULTS)


def test_reciprocal_rank_with_a_cutoff_breaks_ties_as_trec_eval_does():
    wanted = RESULTS["-q -M 10 -m recip_rank -m map -m ndcg"]
    scores = evaluate(RUN, restrict(QRELS, RUN), "RR@10")
    assert {q: f"{row['RR@10']:.4f}" for q, row in scores.per_query.items()} | {
        "all": f"{scores.mean('RR@10'):.4f}"
    } == {q: row["recip_rank"] for q, row in wanted.items()}


def test_ties_are_broken_by_document_id_descending_in_every_program_of_the_library():
    run = Run.of([("q", "a", 1.0), ("q", "b", 1.0), ("q", "c", 1.0)])
    scores = evaluate(run, {"q": {"c": 1, "zz": 0}}, "RR RR@1 P@1 Judged@1 Success@1 nDCG@1 Compat")
    assert scores.means["RR"] == scores.means["RR@1"] == scores.means["P@1"] == scores.means["Judged@1"] == 1
    assert scores.means["Success@1"] == scores.means["nDCG@1"] == scores.means["Compat"] == 1
    assert evaluate(run, {"q": {"a": 1}}, "RR@1 Judged@1").means == {"RR@1": 0.0, "Judged@1": 0.0}


def test_gains_are_the_grades_unless_told_otherwise():
    run = Run.of([("q", "a", 2.0), ("q", "b", 1.0)])
    qrels = {"q": {"a": 1, "b": 3}}
    plain = (1 + 3 / np.log2(3)) / (3 + 1 / np.log2(3))
    exponential = (1 + 7 / np.log2(3)) / (7 + 1 / np.log2(3))
    scores = evaluate(run, qrels, "nDCG@10 nDCG(gains={1: 1, 3: 7})@10")
    assert list(scores.means.values()) == pytest.approx([plain, exponential], abs=1e-12)


@needs_perl
def test_the_web_track_program_breaks_ties_alike_and_takes_any_query_name():
    run = Run.of([("wt-a", "a", 1.0), ("wt-a", "b", 1.0), ("wt b", "a", 1.0)])
    qrels = {"wt-a": {"a": 1, "b": 3}, "wt b": {"a": 2}, "none": {"a": 0}}
    scores = evaluate(run, qrels, "nDCG(dcg='exp-log2')@10 ERR@10")
    exponential = (7 + 1 / np.log2(3)) / (7 + 1 / np.log2(3))
    err = 7 / 16 + (1 / 16) * (1 - 7 / 16) / 2
    np.testing.assert_allclose(scores.values, [[exponential, 1, 0], [err, 3 / 16, 0]], atol=6e-6)


def test_a_judged_query_without_results_counts_as_zero_and_is_named():
    run = Run.of([("q1", "a", 1.0), ("stray", "a", 1.0)])
    scores = evaluate(run, {"q1": {"a": 1}, "q2": {"a": 1}}, "AP Success@1")
    assert scores.means == {"AP": 0.5, "Success@1": 0.5}
    assert scores.without_results == ("q2",)
    assert scores.without_judgements == ("stray",)
    assert scores.remarks == (
        "1 of 2 judged queries without results, counted as 0: q2",
        "1 query with results but without judgements, left out: stray",
    )
    assert "q2" in str(scores)
    assert "0.5000" in str(scores)


def test_a_query_that_a_run_holds_empty_counts_as_without_results():
    run = Run.from_rankings({"q1": {"a": 1.0}, "q2": {}})
    assert evaluate(run, {"q1": {"a": 1}, "q2": {"a": 1}}, "AP").without_results == ("q2",)


def test_grades_below_zero_count_as_not_judged():
    run = Run.of([("q", "a", 3.0), ("q", "b", 2.0), ("q", "c", 1.0)])
    scores = evaluate(run, {"q": {"a": -1, "b": 0, "c": 1}}, "Judged@2 P(judged_only=True)@1 Bpref")
    assert scores.means["Judged@2"] == 0.5
    assert scores.means["P(judged_only=True)@1"] == 0.0


def test_the_same_numbers_come_out_whatever_else_is_asked_for():
    asked = [
        "AP(rel=2)",
        "nDCG@10",
        "P@5",
        "R(rel=3)@10",
        "nDCG(judged_only=True)@10",
        "SetF(beta=2)",
        "SetF",
    ]
    together = evaluate(RUN, QRELS, asked)
    for measure in together.measures:
        np.testing.assert_array_equal(evaluate(RUN, QRELS, measure).of(measure), together.of(measure))


def test_cutting_the_run_at_the_deepest_cutoff_changes_nothing():
    deep = evaluate(RUN, QRELS, "P@5 nDCG@10 R@20 Success@1 AP@15 RR@7 Judged@12 AP RR Judged")
    for measure in deep.measures:
        np.testing.assert_array_equal(evaluate(RUN, QRELS, measure).of(measure), deep.of(measure))


def test_queries_and_judgements_that_never_meet_are_an_error_with_samples_of_both():
    with pytest.raises(BadData, match=r"the run has 301; the judgements have q1, q3, q6, q7, q9 ... \(8"):
        evaluate(Run.of([("301", "d001", 1.0)]), QRELS, "AP")
    with pytest.raises(BadData, match="the run is empty"):
        evaluate(Run.of([]), QRELS, "AP")
    with pytest.raises(BadData, match="no results for any judged query"):
        evaluate(Run.from_rankings({"q1": {}}), QRELS, "AP")
    with pytest.raises(BadData, match="there are no judgements"):
        evaluate(RUN, {}, "AP")
    with pytest.raises(BadData, match="there are no judgements"):
        evaluate(RUN, {"q1": {}}, "AP")


def test_documents_that_never_meet_are_remarked_on():
    scores = evaluate(Run.of([("q1", "D-001", 1.0)]), {"q1": {"d001": 1}}, "AP")
    (remark,) = scores.remarks
    assert scores.mismatch
    assert remark == (
        'none of the documents of the run is in the judgements: in the run there are "D-001", in the '
        'judgements "d001"; do both name documents alike?'
    )


def test_an_unmeasured_measure_is_not_read_as_zero():
    scores = evaluate(RUN, QRELS, "AP P@30")
    with pytest.raises(WrongUse, match=r"computed are: AP P@30"):
        scores.of("nDCG@10")
    assert scores.mean("MAP") == scores.mean("AP")


def test_scorer_gives_the_mean_of_one_measure():
    score = scorer(QRELS, "AP")
    assert score(RUN) == evaluate(RUN, QRELS, "AP").mean("AP")
    assert score(RUN.top(5)) == evaluate(RUN.top(5), QRELS, "AP").mean("AP") != score(RUN)
    with pytest.raises(WrongUse, match="tuning takes one"):
        scorer(QRELS, "AP P@5")


@needs_perl
def test_a_grade_too_large_for_err_is_an_error_with_advice():
    with pytest.raises(BadData, match=r"a grade of 5 .* take grades up to 4"):
        evaluate(Run.of([("q", "a", 1.0)]), {"q": {"a": 5}}, "ERR@10")


# --- the notation ---------------------------------------------------------------------------------------


def test_measures_are_split_at_spaces_and_commas_outside_brackets():
    names = [str(m) for m in parse("AP, P@30 nDCG(gains={1: 1, 2: 3})@10  MAP Recall@5")]
    assert names == ["AP", "P@30", "nDCG(gains={2:3})@10", "R@5"]
    assert [str(m) for m in parse(names)] == names


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("map", "AP"),
        ("P_30", "P@30"),
        ("ndcg_cut_10", "nDCG@10"),
        ("map_cut_100", "AP@100"),
        ("ndcg@20", "nDCG@20"),
        ("recip_rank", "RR"),
        ("mrr@10", "RR@10"),
        ("recall_1000", "R@1000"),
        ("map(rel=2)", "AP(rel=2)"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("ndcg_cut_010", "nDCG@10"),
        ("P.5", "P@5"),
    ],
)
def test_names_of_trec_eval_and_other_capitals_are_taken(typed, meant):
    assert [str(measure) for measure in parse(typed)] == [meant]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("NDGC@10", "nDCG@10"),
        ("Sucess@1", "Success@1"),
        ("ndcg_cut_10@5", "nDCG@5"),
        ("recal_100", "R@100"),
    ],
)
def test_an_unknown_measure_is_refused_with_the_one_that_was_meant(typed, meant):
    with pytest.raises(
        WrongUse, match=rf'"{re.escape(typed)}".*did you mean "{meant}"\?.*choose from: AP, Bpref'
    ):
        parse(typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("P", "needs a cutoff, like  P@10"),
        ("IPrec", "needs a recall, like  IPrec@0.5"),
        ("P@0", "cutoff = 0 was given; it must be from 1"),
        ("P@-3", "cutoff = -3"),
        ("P@99999999999", "cutoff = 99999999999"),
        ("P@True", "cutoff = True"),
        ("P@1.5", "cutoff=1.5"),
        ("P@ten", "cannot be read"),
        ("P(10)", "cannot be read"),
        ("P@10 AP(", "cannot be read"),
        ("AP(depth=3)", 'no parameter "depth"; it has: cutoff, rel, judged_only'),
        ("AP(rel=0)", "rel = 0"),
        ("IPrec@2", "recall = 2.0"),
        ("IPrec@0.123", "hundredths, like  IPrec@0.12"),
        ("SetF(beta=-1)", "beta = -1.0"),
        ("nDCG(gains={1: -1})@3", "whole numbers of 0 or more"),
        ("RBP@10", "not a known measure"),
        ("Accuracy", "not a known measure"),
        ("NumQ", "not a known measure"),
        pytest.param("ERR", r"cannot be computed .* \(perhaps with a cutoff: ERR@10\)", marks=needs_perl),
        ("RR(judged_only=True)@10", "cannot be computed"),
        (" , ", "no measure was given"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_runs(typed, said):
    with pytest.raises(WrongUse, match=said):
        parse(typed)


def test_every_measure_of_the_contract_is_there_with_the_plain_library():
    for measure in parse("AP P@20 P@30 nDCG@10 nDCG@20 RR@10 R@1000 Success@1 Judged@10"):
        assert measure.__name__ in known()
        assert provider_of(measure) in ("pytrec_eval", "msmarco", "judged")


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["q1", "q2", "q3"]),
        st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3).map(float), min_size=1),
        min_size=1,
    ),
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-1, 3), min_size=1),
)
def test_measures_agree_with_their_definitions_on_any_run_with_ties(rankings, judged):
    qrels = dict.fromkeys(rankings, judged)
    scores = evaluate(Run.from_rankings(rankings), qrels, "P@3 RR@3 R@3 Judged@3 Success@2")
    for query_id, documents in rankings.items():
        order = sorted(sorted(documents, reverse=True), key=lambda d: -documents[d])
        hits = [judged.get(d, 0) >= 1 for d in order]
        relevant = sum(grade >= 1 for grade in judged.values())
        seen = [judged.get(d, -1) >= 0 for d in order[:3]]
        assert scores.per_query[query_id] == pytest.approx(
            {
                "P@3": sum(hits[:3]) / 3,
                "RR@3": next((1 / (i + 1) for i, hit in enumerate(hits[:3]) if hit), 0.0),
                "R@3": sum(hits[:3]) / relevant if relevant else 0.0,
                "Judged@3": sum(seen) / len(seen),
                "Success@2": float(any(hits[:2])),
            }
        )


def test_importing_evaluation_loads_neither_torch_nor_the_heavy_libraries():
    heavy = "'torch', 'scipy.stats', 'scipy.special', 'matplotlib', 'jinja2', 'ir_measures', 'pandas'"
    code = (
        "import sys, rankhouse.evaluation.measures, rankhouse.evaluation.compare; "
        "import rankhouse.evaluation.folds, "
        f"rankhouse.evaluation.report; sys.exit(str(sorted({{{heavy}}} & set(sys.modules))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("call", ["parse('AP')", "registry()", "define_measure('Mine', len)"])
def test_without_ir_measures_the_extra_is_named(call):
    """As on Linux on ARM, where trec_eval has no wheel."""
    code = (
        "import sys; sys.modules['ir_measures'] = None\n"
        "from rankhouse.evaluation.measure_notation import parse, registry\n"
        f"from rankhouse.evaluation.own_measures import define_measure\n{call}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert 'run  pip install "rankhouse[measures]"' in done.stderr.strip().splitlines()[-1]
