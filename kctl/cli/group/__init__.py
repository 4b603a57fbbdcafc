"""kctl group."""
