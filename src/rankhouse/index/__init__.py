"""Floor 2: Documents -> Index; Index, Queries -> Run."""
