"""kctl throttle."""
