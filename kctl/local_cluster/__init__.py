"""Several brokers and their metadata store on this machine, as one command."""
