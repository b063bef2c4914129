"""Wrong migrations that are made from right ones: what the tool writes for a fixture, with one mistake in it."""
