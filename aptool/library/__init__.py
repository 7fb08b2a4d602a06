"""Public classes and functions of ``import aptool``."""
