"""Benchmarks. ``make bench`` runs the main ones; each other module is a program."""
