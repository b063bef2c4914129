"""What is left to LibCST's own parser."""


class Unknown(Exception):
    """A text in which the nodes of `ast` could not be found again: written as nobody writes Python."""
