"""The codec: `encode_value`, `decode_value` and what composites are built with.

Knows bytes and values and keeps no state. Composite types (performatives, states, sections) are read by composite.py
without going through Described. Types in Python: types.py. Here: decoder.py, encoder.py.
"""

from amqp10.decoder import (
    ARRAY_TYPES,
    KNOWN_CODES,
    MAX_DEPTH,
    MAX_VALUES,
    check_count,
    check_end,
    compound_head,
    decode_symbol,
    decode_utf8,
    decode_value,
    skip_value,
)
from amqp10.encoder import (
    encode_binary,
    encode_list,
    encode_map,
    encode_string,
    encode_symbol,
    encode_uint,
    encode_ulong,
    encode_value,
    register_encoder,
)

__all__ = [
    "ARRAY_TYPES",
    "KNOWN_CODES",
    "MAX_DEPTH",
    "MAX_VALUES",
    "check_count",
    "check_end",
    "compound_head",
    "decode_symbol",
    "decode_utf8",
    "decode_value",
    "encode_binary",
    "encode_list",
    "encode_map",
    "encode_string",
    "encode_symbol",
    "encode_uint",
    "encode_ulong",
    "encode_value",
    "register_encoder",
    "skip_value",
]
