"""kctl serve."""
