"""One module per API, named as in ApiKeys."""
