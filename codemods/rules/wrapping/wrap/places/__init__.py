"""Where the new statements stand: above, below, in a function of their own."""
