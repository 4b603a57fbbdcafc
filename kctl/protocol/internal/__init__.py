"""Messages that live inside internal topics and group metadata rather than on the wire."""
