"""Floor 3: pairs with labels -> a taught model. Needs the ``neural`` extra."""
