"""`python -m specdyno`: the same as the `specdyno` command."""

from specdyno.cli import main

main()
