"""What pytest's search for doctests leaves alone: modules that need an extra which is not there."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyspark") else ["kctl/export/spark/source.py"]
