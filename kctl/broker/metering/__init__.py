"""What a broker with --metrics-port counts, and how it is served. No other broker loads it."""
