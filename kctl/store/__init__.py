"""Where cluster metadata lives: a tree of znodes with ZooKeeper's semantics."""
