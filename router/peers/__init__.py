"""The messages between routers as bytes: `wire` has the messages, `fields` their parts."""
