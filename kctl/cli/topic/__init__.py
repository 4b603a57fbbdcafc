"""kctl topic, and how commands name topics and partitions."""
