"""``python -m cirf``."""

from cirf.cli import main

main()
