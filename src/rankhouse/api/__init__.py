"""The public Python API: the names that ``import rankhouse as rh`` offers."""
