"""The commands `kctl export` and `kctl import`."""
