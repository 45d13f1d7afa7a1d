"""How fast it is: contestants, a runner that interleaves them, and the page made of the results."""
