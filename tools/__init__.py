"""Small programs that keep this repository in order; none is part of kctl."""
