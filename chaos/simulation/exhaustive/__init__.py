"""Everything that can happen in the smallest worlds."""
