"""The functions that can go into a user's `fsdp2_support.py`.

`compose` copies their source text, so each module here is written for the person who will own the copy: it imports only
the standard library, torch, and its neighbours, and every docstring says why the function exists.
"""
