"""kctl demo: a tour of kctl on three brokers, each step with the command that does it."""
