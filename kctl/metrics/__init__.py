"""Metrics: one catalogue of names, histograms, and their text for Prometheus."""
