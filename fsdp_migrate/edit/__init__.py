"""From edits to files: templates are filled, imports follow, and what comes out is checked before it is written."""
