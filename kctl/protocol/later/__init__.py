"""One module per API of `later_apis`: messages that the client exchanges with later brokers."""
