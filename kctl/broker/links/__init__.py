"""Links: topics that follow a topic of another cluster, byte for byte."""
