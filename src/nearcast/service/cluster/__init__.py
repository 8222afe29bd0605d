"""Several nodes as one service: who has which part of the world, and what nodes tell each other."""
