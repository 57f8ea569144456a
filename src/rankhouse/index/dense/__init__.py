"""Document vectors: encoding, exact search, FAISS."""
