"""How good explanations are: complete, faithful, bound to the model, recovering what was planted, and fast."""
