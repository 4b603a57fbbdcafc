"""The configs of brokers and topics: names, types, defaults and validation. No behaviour."""
