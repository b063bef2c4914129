"""The constructor call, what it is given, what is built around it, and the class itself: one rule a file."""
