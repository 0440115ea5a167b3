"""Measurements, as programs: `python -m bench --help` lists them, bench/README.md says what each asks."""
