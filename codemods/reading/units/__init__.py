"""Which modules are units: auto-wrap policies, and loops over units."""
