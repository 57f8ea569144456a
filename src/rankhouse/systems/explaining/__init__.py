"""Why a system ranks as it does: what the command ``explain`` and ``rh.explain`` share."""
