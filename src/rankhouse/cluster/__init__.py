"""Work beyond one machine, on a Ray cluster: jobs, recipes, search and service."""
