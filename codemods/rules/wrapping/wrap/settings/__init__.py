"""Settings that nothing reads any more."""
