"""The service: rerank, search, explain and judge over HTTP, and the page where people do so."""
