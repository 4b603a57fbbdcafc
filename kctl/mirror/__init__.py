"""Mirrors: copies of topics in another cluster, with an exact map of their offsets.

`kctl mirror` in the shell. `formats.py` is what a mirror keeps in the target cluster, and
`map_topic.py` reads it; decision 0116 has the reasons.
"""
