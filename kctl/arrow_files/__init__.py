"""Files on local and remote file systems, through Arrow, and the partition logs found among them.

Export and import share this package. It knows file systems and log directories, not tables.
"""
