"""The version of aptool, and the command that installs its extras."""

__version__ = "0.3.0"

# True from the first release on PyPI; tests/package/test_install_lines.py then lists the lines of the README
# and the docs to change.
RELEASED = False


def install_command(extra: str) -> str:
    """The command that installs an extra of aptool, for error messages."""
    if RELEASED:
        return f'`python -m pip install "aptool[{extra}]"`'
    return f'`python -m pip install ".[{extra}]"` in a copy of the aptool repository'
