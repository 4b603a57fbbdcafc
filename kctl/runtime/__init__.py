"""The interfaces to the outside world (clock, disk, network, randomness), as Protocols."""
