"""Transactions."""
