"""Storage of cluster metadata: a tree of znodes with ZooKeeper's semantics."""
