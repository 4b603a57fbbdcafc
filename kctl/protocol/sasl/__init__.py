"""SASL mechanisms, both sides: messages and checks without I/O."""
