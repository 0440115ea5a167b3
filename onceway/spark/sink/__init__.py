"""The sink: DataFrames into topics, each row published exactly once.

Executors encode and stage rows (`staging`); the driver decides each batch in the outbox, a shared directory (`outbox`),
and publishes it (`publishing`) as a publisher whose journal is that outbox (`journal`).  Nothing here knows Spark; what
Spark calls is in `onceway.spark.datasource`.
"""
