"""kctl dump-log, verify-log and repair-log."""
