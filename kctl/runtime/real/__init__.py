"""The runtime's doors opened on the operating system."""
