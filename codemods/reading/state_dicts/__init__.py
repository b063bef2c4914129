"""State dicts: which kind is read or loaded, and which file it goes into."""
