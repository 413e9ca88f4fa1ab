"""`python -m gpo` is the command line."""

from gpo.cli import main

main()
