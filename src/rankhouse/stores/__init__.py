"""Stores: databases and search engines that keep documents, vectors and impacts, behind one protocol."""
