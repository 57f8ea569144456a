"""Axioms that rankers obey, counted over all pairs of documents that each of them ranks.

Only texts and order are asked of a ranker, so that runs of any system can be compared. The pairs of
one query belong together: intervals come from redrawing whole queries (bootstrap; Efron, 1979), the same
draws for every ranker and axiom.

What comes out is shown as a table, as a chart of shares with their intervals, and as a page (extra: report).
Shapes: r rankers, a axioms, n queries.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.frames import frame
from rankhouse.core.nouns import Query, Ranking, by_id, require_texts
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.core.sameness import NOTHING, mismatch
from rankhouse.core.sampling import generator
from rankhouse.evaluation.significance import LEVEL, Interval
from rankhouse.explanation.axioms import AXIOMS, DocumentPairs
from rankhouse.explanation.term_features import Floats, TermFeatures, TermReader
from rankhouse.index.index import Index
from rankhouse.page import charts
from rankhouse.page.charts import DASHED, Palette, ending_of, plain_axes, shortened
from rankhouse.page.html import write_page
from rankhouse.page.tables import BETTER, WORSE, Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANCE = 0.5
"""The share that random order gets of every axiom."""
DEEPEST = 1000
FEWEST = 5
"""Queries from which on their spread says something."""
_PAIRS_AT_ONCE = 1 << 17
_DRAWS_AT_ONCE = 256
_TEMPLATE = Path(__file__).parent / "templates" / "axioms.html.j2"


@dataclass(frozen=True)
class DiagnosisOptions:
    """Options of counting axioms.

    Attributes:
        depth: How many documents of each ranking are paired, 2 to 1,000: 50 make 1,225 pairs a query.
        tolerance: Two numbers that differ by at most this share of the larger are about equal.
        vectors: Word vectors for the axioms of meaning, as :func:`rankhouse.text.vectors.start_table` reads
            them; "" leaves those axioms out.
        draws: Bootstrap samples.
        seed: Of the draws.
    """

    depth: int = 50
    tolerance: float = 0.1
    vectors: str | Path = ""
    draws: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what counts nothing."""
        if not 2 <= self.depth <= DEEPEST:
            raise WrongUse(f"depth={self.depth}: pairs are made of 2 to {DEEPEST:,} documents a query")
        if not 0 <= self.tolerance < 1:
            raise WrongUse(f"tolerance={self.tolerance}: give 0 (only equal numbers are equal) to below 1")
        if self.draws < 1:
            raise WrongUse(f"draws={self.draws}: a bootstrap needs 1 sample or more; 2000 are usual")


@dataclass(frozen=True)
class AxiomCount:
    """One ranker's counts for one axiom.

    Attributes:
        pairs: How many pairs the axiom says anything about.
        queries: From how many queries they are.
        share: Which part of them is ordered as it asks, equal scores counted half, with the interval over
            queries; NaN without pairs, NaN ends with fewer than five queries.
    """

    ranker: str
    axiom: str
    pairs: int
    queries: int
    share: Interval

    @property
    def verdict(self) -> int:
        """1 where the whole interval lies above chance, -1 where below, 0 otherwise."""
        return int(self.share.low > CHANCE) - int(self.share.high < CHANCE)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; what is unknown is None."""
        numbers = zip(("share", "low", "high"), self.share, strict=True)
        known = {name: None if math.isnan(value) else value for name, value in numbers}
        return {"ranker": self.ranker, "pairs": self.pairs, "queries": self.queries} | known


@dataclass(frozen=True)
class Diagnosis:
    """Axioms counted for some rankers; prints as a table.

    Attributes:
        counts: A row for each axiom and, within it, each ranker.
        notes: What a reader has to know, one sentence each.
    """

    counts: tuple[AxiomCount, ...]
    rankers: tuple[str, ...]
    queries: int
    options: DiagnosisOptions
    notes: tuple[str, ...] = ()

    @property
    def axioms(self) -> tuple[str, ...]:
        """The axioms counted, in order."""
        return tuple(dict.fromkeys(count.axiom for count in self.counts))

    def of(self, axiom: str) -> tuple[AxiomCount, ...]:
        """Return one axiom's counts, a ranker each."""
        return tuple(count for count in self.counts if count.axiom == axiom)

    @property
    def table(self) -> Table:
        """A row an axiom, a column a ranker; one column of pairs if it is the same for all rankers."""
        shared = all(len({count.pairs for count in self.of(axiom)}) == 1 for axiom in self.axioms)
        heads = ["pairs"] if shared else [f"pairs: {ranker}" for ranker in self.rankers]
        rows, notes = [], {}
        for number, axiom in enumerate(self.axioms):
            counts = self.of(axiom)
            pairs = [f"{count.pairs:,}" for count in (counts[:1] if shared else counts)]
            rows.append((axiom, AXIOMS[axiom].wants, *pairs, *map(_cell, counts)))
            for place, count in enumerate(counts, 2 + len(pairs)):
                if not math.isnan(count.share.low):
                    notes[number, place] = f"{count.share.low:.1%} to {count.share.high:.1%}"
        columns = ("axiom", "asks for", *heads, *self.rankers)
        return Table(columns, tuple(rows), legend=self.legend, notes=notes)

    @property
    def legend(self) -> str:
        """Legend of the table."""
        return (
            "Share of the pairs that are ordered as the axiom asks; random order has 50%. ±: half the "
            f"{LEVEL:.0%} interval over the queries that have such pairs, where {FEWEST} or more of "
            f"{self.queries:,} have some; {BETTER} all above 50%, {WORSE} below."
        )

    def __str__(self) -> str:
        return "\n".join([self.table.to_text(), *(f"note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return self.table.to_html()

    def to_markdown(self) -> str:
        """Return the table in Markdown."""
        return self.table.to_markdown()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        options = {name: getattr(self.options, name) for name in ("depth", "tolerance", "draws", "seed")}
        axioms = [
            {"name": name, "asks_for": AXIOMS[name].wants, "rankers": [c.to_dict() for c in self.of(name)]}
            for name in self.axioms
        ]
        return options | {"queries": self.queries, "axioms": axioms, "notes": list(self.notes)}

    def to_frame(self) -> pd.DataFrame:
        """Return one row an axiom and ranker, with pairs, queries, share, low, high (needs pandas)."""
        columns = ("axiom", "ranker", "pairs", "queries", "share", "low", "high")
        return frame([{"axiom": count.axiom} | count.to_dict() for count in self.counts], columns)


def _cell(count: AxiomCount) -> str:
    """Write a share with half of its interval and what it says about chance."""
    half = (count.share.high - count.share.low) / 2
    mark = {1: f" {BETTER}", 0: "", -1: f" {WORSE}"}[count.verdict]
    interval = "" if math.isnan(half) else f" ± {100 * half:.1f}{mark}"
    return f"{count.share.mean:.1%}{interval}" if count.pairs else "–"


def diagnose(
    runs: Mapping[str, Run],
    queries: Sequence[Query],
    index: Index,
    options: DiagnosisOptions | None = None,
    progress: Progress = ignore,
) -> Diagnosis:
    """Count for each ranker how often it orders two documents as the axioms of retrieval ask.

    >>> import rankhouse as rh
    >>> from rankhouse.explanation.diagnosis import diagnose
    >>> texts = {"a": "ships and more ships", "b": "ships and more bread", "c": "ships, ships and ships"}
    >>> index = rh.Index.build([{"id": i, "text": text} for i, text in texts.items()], "axioms.index")
    >>> queries = [rh.Query("q", "ships")]
    >>> found = diagnose({"BM25": index.retrieve(queries)}, queries, index)
    >>> found.of("TFC1")[0].share.mean
    1.0

    Args:
        runs: Name of a ranker -> its run. Runs over the same candidates are compared on the same pairs.
        index: Where the documents are, and by which words are read and weighed.

    Raises:
        WrongUse: No run.
        BadData: A query of a run without a text, a query given twice, a document that the index lacks, or no
            two documents.
    """
    if not runs:
        raise WrongUse("no run was given; axioms are counted over the documents that a run ranks")
    options, texts = options or DiagnosisOptions(), by_id(queries)
    asked = list(dict.fromkeys(query_id for run in runs.values() for query_id in run))
    require_texts(asked, texts)
    tops = {name: run.top(options.depth) for name, run in runs.items()}
    documents = (doc_id for top in tops.values() for query_id in top for doc_id in top[query_id].doc_ids)
    reader = TermReader(index, documents, [texts[query_id] for query_id in asked], options.vectors)
    axioms = [name for name, axiom in AXIOMS.items() if options.vectors or not axiom.needs_vectors]
    tallies = np.zeros((2, len(runs), len(axioms), len(asked)))
    for column, query_id in enumerate(asked):
        rankings = [top.get(query_id) for top in tops.values()]
        ids = list(dict.fromkeys(d for ranking in rankings if ranking for d in ranking.doc_ids))
        features = reader.features(texts[query_id], ids)
        rows = {doc_id: row for row, doc_id in enumerate(ids)}
        for number, ranking in enumerate(rankings):
            if ranking is not None:
                tallies[:, number, :, column] = _tally(
                    ranking, rows, features, axioms, tolerance=options.tolerance
                )
        progress(column + 1)
    if not tallies[1].any() and not any(len(top[q].doc_ids) > 1 for top in tops.values() for q in top):
        raise BadData("no query of these runs has two documents; axioms compare the documents of a query")
    shares, pairs = _shares(tallies, options), tallies[1].sum(axis=2).astype(int).tolist()
    holding = np.count_nonzero(tallies[1], axis=2).tolist()
    counts = tuple(
        AxiomCount(name, axiom, pairs[row][place], holding[row][place], share=shares[row][place])
        for place, axiom in enumerate(axioms)
        for row, name in enumerate(runs)
    )
    return Diagnosis(counts, tuple(runs), len(asked), options, notes=_notes(tops, axioms, options))


def _tally(
    ranking: Ranking, rows: Mapping[str, int], features: TermFeatures, axioms: Sequence[str], tolerance: float
) -> Floats:
    """Count one ranking's pairs, (2, a): those ordered as each axiom asks, and those it speaks of."""
    place = np.array([rows[doc_id] for doc_id in ranking.doc_ids], np.int64)
    tally, every = np.zeros((2, len(axioms))), np.triu_indices(len(place), 1)
    for start in range(0, len(every[0]), _PAIRS_AT_ONCE):  # blocks bound the memory
        above, below = (ranks[start : start + _PAIRS_AT_ONCE] for ranks in every)
        pairs = DocumentPairs(features, place[above], place[below], tolerance)
        tied = ranking.scores[above] == ranking.scores[below]
        for column, name in enumerate(axioms):
            wanted = AXIOMS[name].prefer(pairs)
            spoken = wanted != 0
            tally[0, column] += (spoken & tied).sum() / 2 + ((wanted > 0) & ~tied).sum()
            tally[1, column] += spoken.sum()
    return tally


def _shares(tallies: Floats, options: DiagnosisOptions) -> list[list[Interval]]:
    """Return each ranker's share of each axiom with its interval, from (2, r, a, n) tallies."""
    rankers, axioms, queries = tallies.shape[1:]
    flat = tallies.reshape(2, -1, queries)
    random = generator(options.seed)
    drawn = []
    for start in range(0, options.draws, _DRAWS_AT_ONCE):
        size = min(_DRAWS_AT_ONCE, options.draws - start)
        weights = random.multinomial(queries, np.full(queries, 1 / queries), size=size).astype(np.float64)
        drawn.append(_ratio(*(side @ weights.T for side in flat)))
    samples, totals = np.concatenate(drawn, axis=1), _ratio(*flat.sum(axis=2))
    edges = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    intervals = []
    for row, mean in enumerate(totals.tolist()):
        known = samples[row][~np.isnan(samples[row])]
        enough = np.count_nonzero(flat[1, row]) >= FEWEST
        ends = np.quantile(known, edges).tolist() if enough else [math.nan, math.nan]
        intervals.append(Interval(mean, *ends))
    return [intervals[number * axioms : (number + 1) * axioms] for number in range(rankers)]


def _ratio(agreed: Floats, spoken: Floats) -> Floats:
    """Divide; NaN where nothing was spoken of."""
    share: Floats = np.divide(agreed, spoken, out=np.full(spoken.shape, np.nan), where=spoken > 0)
    return share


def _notes(tops: Mapping[str, Run], axioms: Sequence[str], options: DiagnosisOptions) -> tuple[str, ...]:
    """Say what a reader of the counts has to know."""
    ranked = {name: {query_id: top[query_id].doc_ids for query_id in top} for name, top in tops.items()}
    (first, found), *others = ranked.items()
    remarks = [mismatch(found, first, other, name, documents=NOTHING) for name, other in others]
    notes = [remark for remark in remarks if remark]
    if left_out := [name for name in AXIOMS if name not in axioms]:
        notes.append(f"{' and '.join(left_out)} were left out: they need word vectors.")
    sets = [{query_id: set(top[query_id].doc_ids) for query_id in top} for top in tops.values()]
    if any(other != sets[0] for other in sets[1:]):
        notes.append(
            f"the first {options.depth} documents are not the same in all runs, so that each is counted over "
            "pairs of its own."
        )
    ties = sum(int((np.diff(top[query_id].scores) == 0).sum()) for top in tops.values() for query_id in top)
    if ties:
        notes.append(f"{ties:,} neighbours in the runs have equal scores; such pairs count half.")
    return tuple(notes)


# --- the page -------------------------------------------------------------------------------------------


def check_target(path: Path) -> str:
    """Return the ending of a file that is a page or a chart.

    Raises:
        WrongUse: It ends in something else.
    """
    return ending_of(path, "axioms are", ".html", ".png", ".svg")


def write(diagnosis: Diagnosis, path: Path | str) -> None:
    """Write a page that stands alone, or the chart, as the file's ending asks.

    Raises:
        WrongUse: Another ending.
        MissingExtra: jinja2 or matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    if check_target(path) != ".html":
        charts.write(lambda palette: _figure(diagnosis, palette), path, "axioms")
        return
    docstrings = {
        name: inspect.getdoc(AXIOMS[name].prefer) or "" for name in diagnosis.axioms
    }  # "TFC1: of two ..."
    rows = tuple((name, " ".join(words.split()).partition(": ")[2]) for name, words in docstrings.items())
    content = {
        "title": "What rankers obey",
        "diagnosis": diagnosis,
        "table": diagnosis.table,
        "meanings": Table(("axiom", "of two documents, which should stand above"), rows),
        "chart": charts.inline(lambda palette: _figure(diagnosis, palette), "axioms"),
    }
    write_page(_TEMPLATE, content, path)


def _figure(diagnosis: Diagnosis, palette: Palette) -> Figure:
    """Lay the chart out: a band an axiom, in it a mark and a line a ranker; dashed is random order."""
    rankers = diagnosis.rankers
    some = [name for name in diagnosis.axioms if any(count.pairs for count in diagnosis.of(name))]
    axioms = some or list(diagnosis.axioms)  # those that say anything about these runs
    band = max(2, len(rankers) + 1)
    height = 0.95 + 0.15 * band * len(axioms)  # inches
    figure, axes = charts.canvas(height, left=0.3, right=0.97, top=1 - 0.42 / height, bottom=0.5 / height)
    for number, ranker in enumerate(rankers):
        shares = [diagnosis.of(axiom)[number].share for axiom in axioms]
        style = _style(number, palette) | {"label": shortened(ranker, 32)}
        _draw_ranker(shares, (number - (len(rankers) - 1) / 2) / (len(rankers) + 1), style, axes)
    for place in range(1, len(axioms)):
        axes.axhline(place - 0.5, color=palette.grid, linewidth=0.6)
    axes.axvline(CHANCE, color=palette.ink, linewidth=0.9, linestyle=DASHED)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(len(axioms) - 0.5, -0.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_yticks(range(len(axioms)), [f"{AXIOMS[name].wants}   {name}" for name in axioms])
    axes.set_xlabel("pairs ordered as the axiom asks, with 95% intervals; dashed: random order")
    plain_axes(axes, palette, grid=False)
    axes.grid(axis="x", color=palette.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    legend: dict[str, Any] = {"frameon": False, "labelcolor": palette.ink, "fontsize": 8.5}
    figure.legend(loc="upper center", ncols=min(6, len(rankers)), handlelength=1.2, **legend)
    return figure


def _style(number: int, palette: Palette) -> dict[str, Any]:
    """Return how a ranker is drawn; marks and fillings tell rankers apart without colour too."""
    colours = (palette.gain, palette.loss, palette.muted, palette.ink)
    style = {"marker": "os^DvP"[number % 6], "color": colours[number % len(colours)], "markersize": 4.5}
    filling = {"markerfacecolor": palette.paper} if number >= len(colours) else {}
    return style | filling | {"linestyle": "none", "clip_on": False}


def _draw_ranker(shares: list[Interval], offset: float, style: dict[str, Any], axes: Axes) -> None:
    """Draw one ranker's shares of the axioms, each with its interval."""
    known = [(at + offset, share) for at, share in enumerate(shares) if not math.isnan(share.mean)]
    for at, share in known:
        if not math.isnan(share.low):
            axes.plot([share.low, share.high], [at, at], color=style["color"], linewidth=1.2)
    axes.plot([share.mean for _, share in known], [at for at, _ in known], **style)
