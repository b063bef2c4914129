"""What several rules need to read or to write: policies, precisions, places, layout. Nothing here is a rule."""
