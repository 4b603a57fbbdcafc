"""Connections in, replies out."""
