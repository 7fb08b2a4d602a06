"""The commands: each module parses one verb's arguments, calls the code that does it, and prints."""
