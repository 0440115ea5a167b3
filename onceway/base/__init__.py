"""What every part stands on: forms of values, log lines, the event loop, memory, WebSockets as bytes."""
