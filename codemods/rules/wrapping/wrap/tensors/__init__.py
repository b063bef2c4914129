"""Where parameters and buffers are kept, in which dtype, and what they start from."""
