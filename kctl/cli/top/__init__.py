"""kctl top: what a cluster does, live."""
