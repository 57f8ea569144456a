"""A recipe's bad input: every fault says the file, the line and what is accepted."""

import json
import shlex

import pytest

from rankhouse.recipes.loops import fill

GOOD = """title = "A look"

[data]
notes = "notes"

[loop]
seed = [1, 2]

[steps.index]
command = "index"
corpus = "@notes/corpus.jsonl"

[steps.bm25]
command = "search"
index = "@index"
queries = "@notes/queries.tsv"

[[table]]
name = "All"
rows = { BM25 = "@bm25" }
qrels = "@notes/qrels.txt"
measures = "AP"
"""


INDEX = 'command = "search"\nindex = "@index"'


@pytest.fixture
def recipe(tmp_path, run):
    """Write a recipe beside a small collection and plan it: gives the program's answer."""
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text('{"id": "d1", "text": "a pilot"}\n')
    (folder / "queries.tsv").write_text("q1\tpilot\n")
    (folder / "qrels.txt").write_text("q1 0 d1 1\n")

    def plan(text, *more):
        (tmp_path / "r.toml").write_text(text)
        return run("run", "r.toml", "--dry-run", *more)

    return plan


def test_a_good_recipe_is_planned_with_its_commands_and_nothing_is_written(recipe, tmp_path):
    done = recipe(GOOD)
    assert done.returncode == 0, done.stderr
    assert "rankhouse index --out work/index-" in done.stdout
    assert "2 steps, 2 to do" in done.stderr
    assert not (tmp_path / "r.out").exists()


def test_systems_may_name_what_other_steps_make(recipe):
    written = [
        "system = 'bm25 % 20 >> \"@index\"'",
        "model = ['dense(@index)', 'dense(\"biencoder(@index)\")', 'ql(mu=9)']",
        'fusion = "rrf(k=9)"\nfeedback = ""',
    ]
    for lines in written:
        done = recipe(GOOD.replace(INDEX, f"{INDEX}\n{lines}"))
        assert done.returncode == 0, done.stderr
        assert "work/index-" in done.stdout


@pytest.mark.parametrize(
    ("was", "becomes", "line", "said"),
    [
        ('index = "@index"', 'indx = "@index"', 15, '"indx" is no option of search (did you mean "index"?)'),
        ('index = "@index"', 'index = "@idnex"', 15, 'did you mean "@index"?'),
        ('index = "@index"', 'index = "@bm25"', 13, "bm25 needs bm25"),
        ('index = "@index"', 'index = "@index"\nk = "many"', 16, "'many' is not a valid integer"),
        ('index = "@index"', 'index = "@index"\nk = [1, 2]', 16, "takes one text or number, not a list"),
        ('index = "@index"', 'index = "@index"\nskip_bad = true', 16, "not a flag's"),
        ('index = "@index"', 'index = "@index"\nout = "a/b"', 16, "file name without folders"),
        ('index = "@index"', 'index = "@index"\njson = true', 16, "set by rankhouse run itself"),
        ('index = "@index"', 'index = "notes"', 15, "name it under [data]"),
        ('index = "@index"', 'index = "@index[seed=1]"', 15, 'does not depend on "seed"'),
        ('index = "@index"', 'index = "@index[seed]"', 15, "write  [fold=*]"),
        ('index = "@index"', 'index = "@index"\nmodel = "{sed}"', 16, '"{sed}" is no loop variable'),
        (
            'corpus = "@notes/corpus.jsonl"',
            'corpus = "@notes/corpus.jsonl"\nappend = true',
            12,
            "not for recipes",
        ),
        ('corpus = "@notes/corpus.jsonl"', 'corpus = "@bm25"', 9, "index needs bm25 needs index"),
        ('corpus = "@notes/corpus.jsonl"', "", 9, "Missing argument"),
        ('command = "search"', 'command = "serch"', 14, 'no command (did you mean "search"?)'),
        (INDEX, f"{INDEX}\nsystem = 'bm25 + 0.5 * qll'", 16, 'did you mean "ql"?'),
        (INDEX, f'{INDEX}\nmodel = ["ql", "bm255"]', 16, 'did you mean "bm25"?'),
        (INDEX, f'{INDEX}\nmodel = "dense(@index)"\nfeedback = "rm4"', 17, 'did you mean "rm3"?'),
        (INDEX, f'{INDEX}\nfusion = "rrff(k=60)"', 16, 'did you mean "rrf"?'),
        ('command = "search"', 'command = "doctor"', 14, '"doctor" is no command'),
        ('command = "search"', "", 13, "names no command"),
        ("seed = [1, 2]", "seed = []", 7, "a list of values or a range"),
        ("seed = [1, 2]", "seed = [1, 1]", 7, "must differ"),
        ("seed = [1, 2]", 'seed = "3..1"', 7, "a range goes up"),
        ("seed = [1, 2]", "seed = [{ x = 1 }]", 7, 'needs a "name"'),
        ('notes = "notes"', 'notes = "@other/x"', 4, "is no data entry"),
        (
            'notes = "notes"',
            'notes = { path = "notes", got = "x" }',
            4,
            '"got" is no key here; accepted: path, get',
        ),
        ('notes = "notes"', 'notes = "@notes/x"', 4, "in a circle: notes -> notes"),
        ('notes = "notes"', 'notes = "notes"\nbm25 = "x"', 14, "a data entry and a step"),
        ('measures = "AP"', "measures = 3", 22, "Expected `str`, got `int`"),
        ('measures = "AP"', 'measures = "APP"', 22, "APP"),
        ('measures = "AP"', 'measures = "AP"\nbaseline = "BM52"', 23, "is no row: BM25"),
        ('measures = "AP"', 'measures = "AP"\ntest = "randomisation"', 23, 'mean "randomization"'),
        ('measures = "AP"', 'measures = "AP"\ncorrection = "Holm"', 23, "bonferroni, holm, none"),
        ('measures = "AP"', 'measures = "AP"\nmeasure = "AP"', 23, '"measure" is no key here'),
        ('measures = "AP"', "", 18, "either measures (of runs) or numbers"),
        ('measures = "AP"', 'measures = "AP"\n[[table.expect]]\nrows.BM25 = { P = 1 }', 24, "P"),
        ('measures = "AP"', 'measures = "AP"\n[[table.expect]]\nrows.B = { AP = 1 }', 24, '"B" is no row'),
        (
            'measures = "AP"',
            'measures = "AP"\n[[table.expect]]\nrows.BM25 = { RR = 1 }',
            24,
            "is no column: AP",
        ),
        (
            'measures = "AP"',
            'measures = "AP"\n[[table.expect]]\nwhen = { seed = 1 }\nrows.BM25 = { AP = 1 }',
            23,
            "not made once for each seed",
        ),
        ('rows = { BM25 = "@bm25" }', 'rows = { BM25 = "@bm52" }', 20, 'did you mean "@bm25"?'),
        ('title = "A look"', 'titel = "A look"', 1, '"titel" is no key here; accepted: title, about'),
        ('title = "A look"', "", 1, '"title" is missing at the top of the recipe; accepted: title, about'),
        ('name = "All"', "", 18, '"name" is missing here'),
        ('title = "A look"', 'title = "A look', 1, "not TOML"),
        (
            'measures = "AP"',
            'measures = "AP"\n[[figure]]\nname="f"\nkind="curve"\nx="size"\nnumber="n"\nrows={A="@ql"}',
            23,
            '"size" is no loop variable; there are: seed',
        ),
    ],
)
def test_a_fault_says_its_line_and_what_is_accepted(recipe, was, becomes, line, said):
    assert was in GOOD
    done = recipe(GOOD.replace(was, becomes, 1))
    assert done.returncode == 2, done.stdout
    assert f"line {line}" in done.stderr
    assert said in done.stderr


def test_a_step_may_name_a_system_with_loop_variables_and_other_steps_in_it(recipe, tmp_path):
    system = 'system = \'0.7 * bm25(k1=0.9) % 20 + {seed} * dense("@notes/ce") >> "@index"\''
    done = recipe(
        GOOD.replace('queries = "@notes/queries.tsv"', f'queries = "@notes/queries.tsv"\n{system}'), "--json"
    )
    assert done.returncode == 0, done.stderr
    steps = json.loads(done.stdout)["steps"]
    searches = [shlex.split(step["command"]) for step in steps if step["step"] == "bm25"]
    systems = [words[words.index("--system") + 1] for words in searches]
    (index,) = [shlex.split(step["command"])[3] for step in steps if step["step"] == "index"]
    ranker = tmp_path / "notes" / "ce"
    assert systems == [
        f'0.7 * bm25(k1=0.9) % 20 + {seed} * dense("{ranker}") >> "{index}"' for seed in (1, 2)
    ]


def test_lines_are_found_beyond_long_values(recipe):
    long = GOOD.replace('title = "A look"', 'title = """A\nlook\n"""').replace(
        "seed = [1, 2]", "seed = [\n  1, # one\n  2,\n]"
    )
    done = recipe(long.replace("measures =", "mesures ="))
    assert done.returncode == 2
    assert f"line {22 + 2 + 3}" in done.stderr


def test_a_change_that_is_wrong_is_named_instead_of_a_line(recipe):
    done = recipe(GOOD, "--set", "steps.bm25.k=none")
    assert done.returncode == 2
    assert "--set steps.bm25.k=none: " in done.stderr
    assert "is not a valid integer" in done.stderr
    for change, said in [
        ("steps.bm52.k=1", 'no table "bm52" there; there are: index, bm25'),
        ("nonsense", "write KEY=VALUE"),
        ("table.4.name=x", 'no table "4"'),
    ]:
        done = recipe(GOOD, "--set", change)
        assert done.returncode == 2
        assert said in done.stderr


def test_changes_are_laid_over_in_order(recipe):
    done = recipe(GOOD, "--set", "steps.bm25.k=7", "--set", "table.0.measures=P@5", "--json")
    assert done.returncode == 0, done.stderr
    assert "-k 7" in done.stdout


def test_the_smallest_size_must_be_declared(recipe):
    done = recipe(GOOD, "--smallest")
    assert done.returncode == 2
    assert "no table [smallest]" in done.stderr
    done = recipe(GOOD + "[smallest]\nsteps.bm25.k = 3\n", "--smallest")
    assert done.returncode == 0, done.stderr
    assert "-k 3" in done.stdout
    done = recipe(GOOD + "[smallest]\nsteps.bm25.kk = 3\n", "--smallest")
    assert done.returncode == 2
    assert "line 24" in done.stderr


def test_a_missing_recipe_is_named(run):
    done = run("run", "nowhere.toml")
    assert done.returncode == 1
    assert "nowhere.toml: there is no such file" in done.stderr


def test_a_loops_row_stands_for_its_name_and_its_entries_for_themselves():
    row = {"name": "fine", "set": {"rate": 0.1}, "runs": ["a", "b"]}
    assert fill("{row}", {"row": row}) == "fine"
    assert fill("{row.set}", {"row": row}) == {"rate": 0.1}
    assert fill({"runs": "{row.runs}"}, {"row": row}) == {"runs": ["a", "b"]}


NESTED = GOOD.replace(
    "seed = [1, 2]",
    """seed = [1, 2]
searcher = [{ name = "by seed", depth = "{seed}" }, { name = "fixed", depth = 9 }]""",
).replace('index = "@index"', 'index = "@index"\nk = "{searcher.depth}"')


def test_an_entry_of_a_loops_row_may_name_another_variable(recipe):
    done = recipe(NESTED, "--json")
    assert done.returncode == 0, done.stderr
    for depth in (1, 2, 9):
        assert f"-k {depth} " in done.stdout


@pytest.mark.parametrize("depth", ["{searcher.depth}", "{sed}"])
def test_an_entry_that_names_itself_or_nothing_is_refused(recipe, depth):
    done = recipe(NESTED.replace('depth = "{seed}"', f'depth = "{depth}"'))
    assert done.returncode == 2
    assert ("in a circle" if "searcher" in depth else '"{sed}" is no loop variable') in done.stderr
    assert "line " in done.stderr
