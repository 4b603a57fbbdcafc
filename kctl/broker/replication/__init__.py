"""A partition on this broker: leading it or following it."""
