"""Files: finding them, reading and writing them, and which of them make up a program."""
