"""The version of aptool, and how it is installed."""

__version__ = "0.3.0"

# Set to True with the first release on PyPI: tests/package/test_install_lines.py then names each line of the
# README and the docs that has to change.
RELEASED = False


def install_command(extra: str) -> str:
    """Command that installs an extra of aptool, for error messages."""
    if RELEASED:
        return f'`python -m pip install "aptool[{extra}]"`'
    return f'`python -m pip install ".[{extra}]"` in a copy of the aptool repository'
