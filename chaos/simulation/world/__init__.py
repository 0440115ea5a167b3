"""A whole network in one process and virtual time: routers, scripted and real clients, the checker."""
