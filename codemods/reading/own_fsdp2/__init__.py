"""What a program shards by its own `fully_shard`."""
