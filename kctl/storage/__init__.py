"""One module per file found in a Kafka log directory; formats only, no policy."""
