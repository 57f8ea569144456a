"""The front door for Python: what ``import rankhouse as rh`` offers."""
