"""kctl produce and kctl consume."""
