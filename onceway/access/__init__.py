"""Who comes in, and how both sides show who they are: users, tokens, certificates, TLS, the key of the network."""
