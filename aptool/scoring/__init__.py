"""Scoring of many pairs: every distinct text encoded once, then joined."""
