"""The simulation: a whole installation in virtual time, from one seed."""
