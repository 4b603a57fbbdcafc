"""kctl mirror."""
