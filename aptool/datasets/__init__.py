"""Importers of public and private answer-selection data, and collections made on the spot."""
