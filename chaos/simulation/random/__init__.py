"""Random schedules: what a seed draws, how it is played, shrunk and drawn."""
