"""Record batches v0, v1, v2 over memoryviews. Nothing here opens a file."""
