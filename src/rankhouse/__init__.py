"""rankhouse: neural document ranking, from a person's own files to a better ranking.

The rooms, from the ground floor up: ``core`` (what flows), ``text`` and ``nn`` (strings, tensors),
``index``, ``models``, ``rank``, ``label`` and ``evaluate`` (the stations), ``train`` and ``explain``,
``app`` (where everything meets people). A room imports only from lower floors.
"""

__version__ = "0.1.0"
