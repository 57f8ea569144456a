"""How good explanations are: complete, faithful, bound to the model, and fast."""
