"""Runs exports on Spark, and provides the data source `kctl`. The only package that imports
pyspark."""
