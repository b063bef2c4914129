"""The child side of the verifier: runs inside the user's training processes and writes down what it sees.

It imports torch and nothing else of `fsdp_migrate`. It issues no collective of its own, so that it can neither hang nor
reorder the job: each rank appends to its own JSONL file, and every number that needs a global view is written as a
partial sum over the elements that the rank owns. The parent side (`fsdp_migrate.verify`) adds the partial sums up.
"""
