"""The network layer: listeners, connections, requests and responses."""
