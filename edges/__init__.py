"""Edges: other protocols and address types with storage, each a small package on the network's ordinary links."""
