"""Administration as a library: every function returns values and prints nothing."""
