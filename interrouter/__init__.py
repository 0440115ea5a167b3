"""What routers say to each other: who is there, which way leads where, and reliable streams between any two of them."""
