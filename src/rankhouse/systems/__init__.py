"""Systems that rank: first stages, fusion, rankers; searching, reranking, explaining."""
