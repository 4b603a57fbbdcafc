"""kctl cluster."""
