"""The proof that a mirror has what its source has, and nothing else, record by record."""
