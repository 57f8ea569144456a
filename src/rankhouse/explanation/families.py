"""The methods that look into a model, by family; whoever loads this loads torch."""

from __future__ import annotations

from rankhouse.explanation.gates import explain_drmm, explain_pacrr_drmm
from rankhouse.explanation.gradients import explain_gradients
from rankhouse.explanation.kernels import explain_conv_knrm, explain_knrm, explain_tk
from rankhouse.explanation.options import Method
from rankhouse.explanation.removal import explain_removal
from rankhouse.explanation.shapley import explain_shapley
from rankhouse.explanation.vectors import explain_biencoder

METHODS: dict[str, Method] = {
    "crossencoder": explain_removal,
    "monot5": explain_removal,
    "biencoder": explain_biencoder,
    "tk": explain_tk,
    "knrm": explain_knrm,
    "conv_knrm": explain_conv_knrm,
    "samcnn": explain_shapley,
    "drmm": explain_drmm,
    "pacrr": explain_shapley,
    "pacrr_drmm": explain_pacrr_drmm,
    "matchpyramid": explain_shapley,
    "mp_hcnn": explain_shapley,
}
"""Family -> the method of its own."""

INSIDE: dict[str, Method] = {"gradients": explain_gradients}
"""Methods for some families, by the names they are asked for."""
