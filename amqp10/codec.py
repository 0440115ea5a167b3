"""The codec for other packages: values to bytes and back. How values look in Python: types.py.

Within this package decoder.py and encoder.py are imported directly.
"""

from amqp10.decoder import KNOWN_CODES, MAX_DEPTH, MAX_VALUES, decode_value, skip_value
from amqp10.encoder import encode_uint, encode_value

__all__ = ["KNOWN_CODES", "MAX_DEPTH", "MAX_VALUES", "decode_value", "encode_uint", "encode_value", "skip_value"]
