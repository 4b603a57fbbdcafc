"""Partitions on this broker, as leader or follower."""
