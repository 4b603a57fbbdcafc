"""Repair of log directories: plans, edits, rebuilt files, and extraction of readable records."""
