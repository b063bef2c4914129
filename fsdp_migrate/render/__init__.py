"""What a run found, in the form that a person, a CI system or another program reads."""
