"""Why a document scores what it scores, and why one stands above another."""
