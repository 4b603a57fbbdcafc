"""kctl broker."""
