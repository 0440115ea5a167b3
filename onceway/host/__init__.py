"""Processes of one host: a router, the supervisor of several, the stores beside them, how they start and end."""
