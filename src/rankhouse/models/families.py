"""The table of model families: how one is opened, begun or rebuilt, and what puts it to work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import make
from rankhouse.models.biencoder import BiEncoder, open_biencoder
from rankhouse.models.cedr import CEDR
from rankhouse.models.cedr_design import CEDRDesign
from rankhouse.models.contract import Model
from rankhouse.models.conv_knrm import ConvKNRM, ConvKNRMDesign
from rankhouse.models.crossencoder import CrossEncoder, open_crossencoder
from rankhouse.models.dense_ranker import DenseRanker
from rankhouse.models.drmm import DRMM, DRMMDesign
from rankhouse.models.duot5 import open_duot5
from rankhouse.models.knrm import KNRM, KNRMDesign
from rankhouse.models.matchpyramid import MatchPyramid, MatchPyramidDesign
from rankhouse.models.monot5 import MonoT5, open_monot5
from rankhouse.models.mp_hcnn import MPHCNN, MPHCNNDesign
from rankhouse.models.pacrr import PACRR, PACRRDesign
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNN, SamCNNDesign
from rankhouse.models.tk import TK, TKDesign


class Design(Protocol):
    """A model still to be trained: what ``tk(...)`` says."""

    def fresh(self, texts: Iterable[str], seed: int = 0) -> Model[Any]:
        """Count a vocabulary over texts and draw the weights."""
        ...


class Family(NamedTuple):
    """One line of the table; a family has ``open`` or ``design``.

    Attributes:
        rebuild: Makes a model from a bundle's policy and assets; the weights are put in afterwards.
        open: Opens a published checkpoint: ``monot5("DIR")``.
        design: Says what a model to be trained is like: ``tk(vectors="glove.txt")``.
        ranker: What puts a model to work.
    """

    rebuild: Callable[[Mapping[str, Any], Mapping[str, bytes]], Model[Any]]
    open: Callable[..., Model[Any]] | None = None
    design: Callable[..., Design] | None = None
    ranker: Callable[..., NeuralRanker] = NeuralRanker


FAMILIES: dict[str, Family] = {
    "monot5": Family(MonoT5.rebuild, open=open_monot5),
    "crossencoder": Family(CrossEncoder.rebuild, open=open_crossencoder),
    "biencoder": Family(BiEncoder.rebuild, open=open_biencoder, ranker=DenseRanker),
    "tk": Family(TK.rebuild, design=TKDesign),
    "knrm": Family(KNRM.rebuild, design=KNRMDesign),
    "conv_knrm": Family(ConvKNRM.rebuild, design=ConvKNRMDesign),
    "samcnn": Family(SamCNN.rebuild, design=SamCNNDesign),
    "drmm": Family(DRMM.rebuild, design=DRMMDesign),
    "pacrr": Family(PACRR.rebuild, design=PACRRDesign),
    "pacrr_drmm": Family(PACRR.rebuild, design=partial(PACRRDesign, aggregate="terms")),
    "matchpyramid": Family(MatchPyramid.rebuild, design=MatchPyramidDesign),
    "mp_hcnn": Family(MPHCNN.rebuild, design=MPHCNNDesign),
    "cedr_knrm": Family(CEDR.rebuild, design=partial(CEDRDesign, head="knrm")),
    "cedr_pacrr": Family(CEDR.rebuild, design=partial(CEDRDesign, head="pacrr")),
    "cedr_drmm": Family(CEDR.rebuild, design=partial(CEDRDesign, head="drmm")),
}

PUBLISHED = {name: family.open for name, family in FAMILIES.items() if family.open is not None}
"""Families whose checkpoints others publish: name -> what opens one."""

DESIGNS = {name: family.design for name, family in FAMILIES.items() if family.design is not None}
"""Families that are trained from the start here: name -> what its notation makes."""


PAIRWISE = {"duot5": open_duot5}
"""Families that compare passages two by two, so that they order lists and score no pairs."""


def open_model(spec: str) -> Model[Any]:
    """Open a published checkpoint by its family's notation: ``crossencoder("DIR", scale="logit")``.

    Raises:
        WrongUse: An unknown family, or one that is only trained, or arguments it does not take.
        BadModel: The checkpoint cannot be used.
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
    return make(spec, PUBLISHED, "family of published rankers")
