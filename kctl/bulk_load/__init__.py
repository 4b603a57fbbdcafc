"""Tables become records: segment files for a broker that is stopped, or through its producer."""
