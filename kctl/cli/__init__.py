"""The command line: parses, calls one library function, renders."""
