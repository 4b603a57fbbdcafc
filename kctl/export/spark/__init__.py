"""Spark as the scheduler of exports, and the data source `kctl`. Only here is pyspark imported."""
