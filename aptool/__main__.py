"""``python -m aptool`` is the same as ``aptool``."""

from aptool.cli.main import main

main()
