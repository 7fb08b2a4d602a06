"""The version of aptool, which every package may read."""

__version__ = "0.2.0"
