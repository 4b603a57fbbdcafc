"""Deterministic simulation: brokers, store, network, disks and clients from one seed."""
