"""MQTT clients with QoS 2 on the real protocol cores, in virtual time (protocol 6.11, 7.9; docs/simulation.md)."""
