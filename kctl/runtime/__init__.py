"""The doors to the outside world, as Protocols, and nothing else."""
