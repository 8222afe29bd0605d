"""`nearcast advise`: which overlay suits a recorded world, and what it costs."""
