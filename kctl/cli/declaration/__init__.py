"""The layer beside Typer: declares, parses, documents and completes commands.

`command.py` declares a command with Typer's own annotations and adds the shared options. `spec.py`
reads a declaration into plain values, and everything else uses those: `quick.py` parses plain
command lines, `help.py` formats `--help`, `completion_scripts.py` writes the scripts of the shells
and `reference.py` docs/commands.md. `names.py` looks up names of topics and groups for the shells.
Typer parses the command lines that `quick.py` leaves to it, and reports their errors. See decision
0060.
"""
