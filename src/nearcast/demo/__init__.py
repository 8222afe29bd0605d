"""The games that bots play and people fly."""
