"""The Python library: what ``import aptool`` offers, as thin classes over the other packages."""
