"""`python -m horae` is `horae`."""

from horae.cli import main

main()
