"""The proof that a mirror has what its source has: a comparison of two partitions, record by record."""
