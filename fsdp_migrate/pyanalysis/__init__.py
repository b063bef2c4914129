"""What Python says: which name means what, where a value is made, who calls a function, what cannot run together."""
