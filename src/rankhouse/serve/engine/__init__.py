"""The engine: rankers served from one thread each, which joins the work of all requests into batches."""
