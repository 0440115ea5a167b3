"""`python -m onceway`: the command line without the installed script."""

from onceway.cli import main

main()
