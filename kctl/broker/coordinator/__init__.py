"""Coordinators: state machines replicated through internal topics."""
