"""Benchmarks, a program each; ``make bench`` runs those that need no other library."""
