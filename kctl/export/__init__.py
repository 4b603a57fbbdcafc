"""Exports records of segment files and live brokers to tables. Only `export.spark` uses Spark."""
