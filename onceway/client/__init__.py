"""The client library: `connection` for asyncio, `protocol` for the rules, `journal` for what survives a crash."""
