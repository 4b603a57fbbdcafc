"""`kctl import`: converts tables to records, in the files of a stopped broker or through a
producer."""
