"""Measurements: ratios of things measured in one run. ``make bench`` runs them."""
