"""The log: segments, indexes, recovery, retention."""
