"""Events, fold and decisions: pure. No I/O, no clock, no random numbers."""
