"""MQTT clients onto the core's ports: so far how topics and messages are mapped; nothing of it is reachable by clients.

Read `topic_map`, then `conversion`. The design is docs/decisions/mqtt.md.
"""
