"""The client library: `connection` (asyncio) is its front, `protocol` its sans-IO heart, `journal` its memory."""
