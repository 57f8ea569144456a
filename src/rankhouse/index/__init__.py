"""Documents -> Index; Index, Queries -> Run."""
