"""The stores of MQTT's retained messages (docs/mqtt.md, Retained messages)."""
