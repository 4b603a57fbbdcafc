"""What other people's tests need of kctl."""
