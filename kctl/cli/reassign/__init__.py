"""kctl reassign."""
