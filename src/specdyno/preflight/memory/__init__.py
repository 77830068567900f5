"""Do target and draft fit, and what does the draft cost: an estimate from files, before the first boot."""
