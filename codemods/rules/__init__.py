"""The rules that rewrite, a construct a file."""
