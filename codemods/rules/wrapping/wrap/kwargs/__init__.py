"""`**kwargs`: arguments that come in a dict, and dicts that go on with the names of `fully_shard`."""
