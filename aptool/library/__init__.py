"""The public classes and functions of ``import aptool``."""
