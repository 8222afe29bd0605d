"""Parsers that read bytes from outside, fed with damaged input: see `targets` and `__main__`."""
