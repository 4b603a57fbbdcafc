"""Declares, parses, documents and completes commands.

`declarations.py` has the classes that commands are declared with; `command.py` adds the shared
options. `spec.py` reads a declaration into plain values, and everything else uses those: `quick.py`
parses plain command lines, `help.py` formats `--help`, `completion_scripts.py` writes the scripts
of the shells and `reference.py` docs/commands.md. `names.py` looks up names of topics and groups
for the shells. `click_parser.py` parses the command lines that `quick.py` leaves, and reports
their errors. See decision 0100.
"""
