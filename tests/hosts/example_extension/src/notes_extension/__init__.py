"""An example of what a package can add to rankhouse; reading this module loads neither torch nor a model."""

from rankhouse.models.families import Family

WORD_WEIGHTS = Family(
    "notes_extension.family:WordWeights",
    {"epochs": 3, "batch": 16, "optimizer": "adam", "rate": 0.05, "measure": "RR@10"},
    designed="notes_extension.family:WordWeightsDesign",
)
