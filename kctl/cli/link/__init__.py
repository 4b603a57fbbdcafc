"""kctl link."""
