"""Topics: every subscription gets a copy of each message. Read `router.core.topic.distribution`."""
