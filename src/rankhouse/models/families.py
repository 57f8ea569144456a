"""The table of model families: one line says all that the other packages know of a family.

A family is added here and in a file of its own, or by another package (docs/extending.md). Models and
explanations are named, ``module.name``, and imported when they are used, so that reading the table loads
neither torch nor the other families. Another package names its own ``package.module:name``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from rankhouse.core.errors import BadModel, RankhouseError, WrongUse
from rankhouse.core.notation import ONE_PARSER, Extensible, make

if TYPE_CHECKING:
    from rankhouse.models.contract import Model
    from rankhouse.models.monot5 import MonoT5
    from rankhouse.models.ranker import NeuralRanker


class Design(Protocol):
    """A model still to be trained: what ``tk(...)`` says."""

    def fresh(self, texts: Iterable[str], seed: int = 0) -> Model[Any]:
        """Count a vocabulary over texts and draw the weights."""
        ...


@dataclass(frozen=True)
class Family:
    """One line of the table; a family has ``published`` or ``designed``."""

    model: str  # module of ``rankhouse.models`` and class
    # training settings of its paper, where they differ from ``training.settings.Settings``; None: it is not
    # trained here
    settings: Mapping[str, Any] | None
    published: str = ""  # function that opens a published checkpoint: ``monot5("DIR")``
    designed: str = ""  # class that describes a model to be trained: ``tk(vectors="glove.txt")``
    # arguments of ``designed`` that the family's name stands for
    fixed: Mapping[str, Any] = field(default_factory=dict)
    works_as: str = "ranker.NeuralRanker"  # class that scores with the model
    # module of ``rankhouse.explanation`` and function that explains a score
    explain: str = "removal.explain_removal"
    gradients: bool = False  # whether integrated gradients can explain it, too
    # notation of the model that an adaptation trains by default; "": the family's name needs arguments there
    student: str = ""
    # training settings of an adaptation, where they differ from ``settings``; none: margins
    adaptation: Mapping[str, Any] = field(default_factory=dict)
    # those that differ further where the teacher's score of any pair is at hand
    crossed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> Callable[..., Model[Any]] | None:
        """Opener of a published checkpoint; None for a family that is trained from the start."""
        return _load(self.published) if self.published else None

    @property
    def design(self) -> Callable[..., Design] | None:
        """Design of a model to be trained, by its notation; None for a family of published checkpoints."""
        if not self.designed:
            return None
        return partial(_load(self.designed), **self.fixed) if self.fixed else _load(self.designed)

    @property
    def rebuild(self) -> Callable[[Mapping[str, Any], Mapping[str, bytes]], Model[Any]]:
        """Builder of a model from a bundle's policy and assets; the weights are put in afterwards."""
        model: type[Model[Any]] = _load(self.model)
        return model.rebuild

    @property
    def ranker(self) -> Callable[..., NeuralRanker]:
        """The class that scores with the model: ``ranker(model, compute)``."""
        ranker: type[NeuralRanker] = _load(self.works_as)
        return ranker


class LazyTable(Mapping[str, Callable[..., Any]]):
    """The families that have "published" or "designed": name -> what it names, imported when looked up."""

    def __init__(self, families: Mapping[str, Family], kind: str, opens: str) -> None:
        self._families, self._kind, self._opens = families, kind, opens

    def __getitem__(self, name: str) -> Callable[..., Any]:
        if name not in self:
            raise KeyError(name)
        found: Callable[..., Any] = getattr(self._families[name], self._opens)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._families and bool(getattr(self._families[str(name)], self._kind))

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._families if name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _load(name: str) -> Any:  # noqa: ANN401  # a class or a function
    """Import ``module.name`` of this package, or ``package.module:name``."""
    module, own = _place(name)
    return getattr(import_module(module), own)


def _place(name: str) -> tuple[str, str]:
    module, _, own = name.partition(":" if ":" in name else ".")
    return module if ":" in name else f"rankhouse.models.{module}", own


@cache
def _declared(name: str) -> Signature | None:
    """Return the arguments of a function as its source declares them, as importing it would load torch.

    A default that is neither a literal nor a constant is an Ellipsis, which equals no value. None where the
    source has no function of that name, or one that takes any argument.
    """
    module, own = _place(name)
    for one in _body(module):
        if isinstance(one, ast.FunctionDef) and one.name == own:
            return None if one.args.vararg or one.args.kwarg else _signature(one.args, module)
    return None


@cache
def _body(module: str) -> list[ast.stmt]:
    """Return the statements of a module; none where there is no source to read."""
    with suppress(ImportError, SyntaxError, ValueError):
        spec = find_spec(module)
        source = spec and spec.loader and getattr(spec.loader, "get_source", lambda _: None)(module)
        with ONE_PARSER:
            return ast.parse(source or "").body
    return []


def _signature(arguments: ast.arguments, module: str) -> Signature:
    placed = [*arguments.posonlyargs, *arguments.args]
    usual = [None] * (len(placed) - len(arguments.defaults)) + list[ast.expr | None](arguments.defaults)
    parameters = [
        Parameter(one.arg, kind, default=Parameter.empty if default is None else _default(default, module))
        for kind, names, defaults in (
            (Parameter.POSITIONAL_OR_KEYWORD, placed, usual),
            (Parameter.KEYWORD_ONLY, arguments.kwonlyargs, arguments.kw_defaults),
        )
        for one, default in zip(names, defaults, strict=True)
    ]
    return Signature(parameters)


def _default(node: ast.expr, module: str) -> object:
    with suppress(ValueError, TypeError):
        return ast.literal_eval(node)
    name = node.id if isinstance(node, ast.Name) else ""
    for one in _body(module) if name else ():
        match one:
            case ast.Assign(targets=[ast.Name(id=own)], value=value) if own == name:
                return _default(value, module)
            case ast.AnnAssign(target=ast.Name(id=own), value=ast.expr() as value) if own == name:
                return _default(value, module)
            case ast.ImportFrom(module=str(source), names=names):
                for alias in (one for one in names if name == (one.asname or one.name)):
                    return _default(ast.Name(alias.name), source)
    return ...


def is_unfinished(folder: Path) -> bool:
    """Return whether a folder is of a training, or of an adaptation, that has made no ranker so far."""
    begun = (("settings.json", "log.jsonl"), ("plan.json", "questions"))  # the files of each that come first
    return any(all((folder / name).exists() for name in names) for names in begun)


def is_published(name: str) -> bool:
    """Return whether a family's notation opens checkpoints that rank: ``crossencoder("DIR")``, ``duot5``."""
    return name in PAIRWISE or name in PUBLISHED


def arguments_of(name: str) -> Signature | None:
    """Return what opens a family's checkpoints takes; None for no such family, and where it does not say."""
    family = _PAIRWISE.get(name) or FAMILIES.get(name)
    return _declared(family.published) if family is not None and family.published else None


# Hofstätter et al., TREC 2019: Adam, 1e-4 for embedding and contextualisation, 1e-3 for the rest; batches,
# plateau, patience and measure from their published configuration.
_KERNELS: Final[dict[str, Any]] = {
    "epochs": 3,
    "batch": 64,
    "optimizer": "adam",
    "rate": 1e-3,
    "schedule": "plateau(factor=0.5, patience=10)",
    "measure": "RR@10",
    "patience": 35,
}
# Shi et al., NAACL 2019, table 2 (rate) and their code (momentum, decay, schedule): batches are the posts of
# a query, 256 at most. Mixed ones with 4 negatives for each positive did better: docs/samcnn.md.
_POSTS: Final[dict[str, Any]] = {
    "epochs": 15,
    "by_query": 256,
    "count": 0,
    "optimizer": "sgd(momentum=0.9, weight_decay=1e-4)",
    "rate": 0.03,
    "schedule": "step(every=5, factor=0.75)",
}
# MacAvaney et al., SIGIR 2019: 2e-5 for BERT, 1e-3 for the rest; batches of 16 pairs in two parts, a relevant
# and another passage each, from their code, which ends after 20 validations without a gain.
_CEDR: Final[dict[str, Any]] = {
    "epochs": 3,
    "batch": 16,
    "accumulate": 2,
    "rate": 1e-3,
    "rates": {"network": 2e-5},
    "measure": "P@20",
    "patience": 20,
}
_BERT: Final[dict[str, Any]] = {"optimizer": "adamw", "schedule": "linear(warmup=0.1)", "clip": 1.0}
_LISTS: Final[dict[str, Any]] = {
    "loss": "listwise-kl",
    "optimizer": "adam",
    "clip": 5.0,
    "schedule": "linear(warmup=100)",
    "patience": 0,
    "measure": "nDCG@10",
    "rate": 5e-3,
}
_MARGINS: Final[dict[str, Any]] = {"loss": "margin-mse", "clip": 1.0, "measure": "nDCG@10", "patience": 0}
# Four questions (of a bi-encoder eight) bring their document and seven more of the teacher's list each; the
# questions of all these documents stand beside them. Small rates and no dropout keep what the encoder knows.
_KEPT: Final = {"dropout": 0.0, "patience": 4}
_CROSSED: Final = {"loss": "listwise-kl", "crossed": True, "batch": 4, "count": 7, **_KEPT}
_STUDENT = "(passage_length=120, min_count=2{vectors})"

_OWN: dict[str, Family] = {
    # Nogueira et al., EMNLP 2020: constant 1e-3, class-balanced batches of 128.
    "monot5": Family(
        "monot5.MonoT5",
        {
            "epochs": 3,
            "batch": 128,
            "accumulate": 16,
            "optimizer": "adafactor",
            "rate": 1e-3,
            "measure": "RR@10",
        },
        published="monot5.open_monot5",
        gradients=True,
    ),
    # Rudra, Fernando, Anand (QA-DocRank): 1e-5, batches of 16, one negative for each positive; their epochs
    # are not given, the schedule is BERT's own. An adaptation takes three questions of eight passages a step;
    # the head is new, the encoder is not.
    "crossencoder": Family(
        "crossencoder.CrossEncoder",
        _BERT | {"epochs": 2, "batch": 16, "rate": 1e-5},
        published="crossencoder.open_crossencoder",
        gradients=True,
        adaptation=_MARGINS
        | {
            "loss": "listwise-kl",
            "batch": 24,
            "count": 7,
            "rate": 1e-4,
            "rates": {"network.classifier": 1e-3},
        }
        | {"dropout": 0.0, "precision": "auto"},
    ),
    # DPR's in-batch softmax, rate and schedule; the temperature is the model's.
    "biencoder": Family(
        "biencoder.BiEncoder",
        _BERT | {"epochs": 3, "batch": 32, "count": 0, "rate": 2e-5},
        published="biencoder.open_biencoder",
        works_as="encoder_rankers.DenseRanker",
        explain="vectors.explain_biencoder",
        adaptation=_MARGINS | {"batch": 12, "count": 3, "rate": 2e-5},
        crossed=_CROSSED | {"loss": "listwise-kl(sharpness=2)", "batch": 8},
    ),
    # SPLADE v2: 2e-5, in-batch negatives; without its regularisation, weights of trained ones stay sparse.
    "sparse": Family(
        "sparse.SparseEncoder",
        _BERT | {"epochs": 3, "batch": 32, "count": 0, "rate": 2e-5},
        published="sparse.open_sparse",
        works_as="encoder_rankers.SparseRanker",
        explain="vectors.explain_sparse",
        crossed=_CROSSED,
    ),
    # ColBERT's 3e-6 was for triples of MS MARCO; in-batch negatives as PyLate trains them.
    "colbert": Family(
        "colbert.LateInteraction",
        _BERT | {"epochs": 3, "batch": 32, "count": 0, "rate": 3e-6},
        published="colbert_checkpoint.open_colbert",
        explain="vectors.explain_colbert",
        crossed=_CROSSED,
    ),
    "causal": Family("causal.CausalRanker", None, published="causal.open_causal"),
    "tk": Family(
        "tk.TK",
        _KERNELS | {"rates": {"embedding": 1e-4, "encoder": 1e-4, "mix": 1e-4}},
        designed="tk.TKDesign",
        explain="kernels.explain_tk",
        student="tk(layers=1, heads=8, passage_length=120, min_count=2{vectors})",
        adaptation=_LISTS | {"rates": {"embedding": 3e-3, "encoder": 1e-3, "mix": 1e-3}},
    ),
    "knrm": Family(
        "knrm.KNRM",
        _KERNELS | {"rates": {"embedding": 1e-4}},
        designed="knrm.KNRMDesign",
        explain="kernels.explain_knrm",
        student="knrm" + _STUDENT,
        adaptation=_LISTS | {"rates": {"embedding": 3e-3}},
    ),
    "conv_knrm": Family(
        "knrm.ConvKNRM",
        _KERNELS | {"rates": {"embedding": 1e-4}},
        designed="knrm.ConvKNRMDesign",
        explain="kernels.explain_conv_knrm",
        student="conv_knrm" + _STUDENT,
        adaptation=_LISTS | {"rates": {"embedding": 3e-3}},
    ),
    "samcnn": Family(
        "samcnn.SamCNN", _POSTS, designed="samcnn.SamCNNDesign", explain="removal.explain_shapley"
    ),
    "drmm": Family("drmm.DRMM", _KERNELS, designed="drmm.DRMMDesign", explain="gates.explain_drmm"),
    "pacrr": Family("pacrr.PACRR", _KERNELS, designed="pacrr.PACRRDesign", explain="removal.explain_shapley"),
    "pacrr_drmm": Family(
        "pacrr.PACRR",
        _KERNELS,
        designed="pacrr.PACRRDesign",
        fixed={"aggregate": "terms"},
        explain="gates.explain_pacrr_drmm",
    ),
    "matchpyramid": Family(
        "matchpyramid.MatchPyramid",
        _KERNELS,
        designed="matchpyramid.MatchPyramidDesign",
        explain="removal.explain_shapley",
    ),
    # Compared with samCNN on its terms.
    "mp_hcnn": Family(
        "mp_hcnn.MPHCNN", _POSTS, designed="mp_hcnn.MPHCNNDesign", explain="removal.explain_shapley"
    ),
    **{
        f"cedr_{head}": Family("cedr.CEDR", _CEDR, designed="cedr_design.CEDRDesign", fixed={"head": head})
        for head in ("knrm", "pacrr", "drmm")
    },
}

FAMILIES: Mapping[str, Family] = Extensible(
    _OWN, "rankhouse.families", lambda given: isinstance(given, Family), "rankhouse.models.families.Family"
)

PUBLISHED: Mapping[str, Callable[..., Model[Any]]] = LazyTable(FAMILIES, "published", "open")
"""Families whose checkpoints others publish: name -> what opens one."""

DESIGNS: Mapping[str, Callable[..., Design]] = LazyTable(FAMILIES, "designed", "design")
"""Families that are trained from the start here: name -> what its notation makes."""

_PAIRWISE: Final = {"duot5": Family("monot5.MonoT5", None, published="duot5.open_duot5")}
PAIRWISE: Mapping[str, Callable[..., MonoT5]] = LazyTable(_PAIRWISE, "published", "open")
"""Families that compare passages two by two, so that they order lists and score no pairs."""


def open_model(spec: str) -> Model[Any]:
    """Open a published checkpoint by its family's notation: ``crossencoder("DIR", scale="logit")``.

    Raises WrongUse: an unknown family, or one that is only trained, or arguments it does not take; BadModel:
    the checkpoint cannot be used.
    """
    name = spec.partition("(")[0].strip()
    if name in DESIGNS:
        raise WrongUse(
            f"{spec}: a {name} is not published, it is trained: run  rankhouse train --ranker '{spec}' ... "
            "--out DIR ; the folder it makes is the ranker"
        )
    if name in PAIRWISE:
        raise WrongUse(
            f"{spec}: {name} compares the documents of a list two by two and scores no single pair; give it "
            "to rerank, behind a ranker that does"
        )
    with reading(spec):
        return make(spec, PUBLISHED, "family of published rankers")


@contextmanager
def reading(checkpoint: object) -> Iterator[None]:
    """Turn what readers of damaged files raise, whatever it is, into a BadModel."""
    try:
        yield
    except (RankhouseError, ImportError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[-1].strip()[:300]
        raise BadModel(
            f"{checkpoint}: its files are damaged, or do not fit together ({reason}); fetch the folder again"
        ) from error
