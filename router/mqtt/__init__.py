"""MQTT clients onto the core's ports (docs/mqtt.md; design: docs/decisions/mqtt.md).

Read `service`, `connection`, `session`, then `publisher` and `subscriber`; `topic_map` and `conversion` for what is
mapped onto what.
"""
