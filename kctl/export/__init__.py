"""Records out of segment files and brokers into tables. Spark only in `export.spark*`."""
