"""Benchmarks, each of which compares two things in one run. ``make bench`` runs them."""
