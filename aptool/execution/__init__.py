"""Scoring and training where a job runs: on a device of this machine, or on a Ray cluster."""
