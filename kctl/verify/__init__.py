"""Verification of log directories without a broker; yields findings and changes nothing."""
