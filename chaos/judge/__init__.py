"""The judge of histories: what applications sent, were told and were handed, and which guarantee that breaks."""
