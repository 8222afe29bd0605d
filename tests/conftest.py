from hypothesis import settings

settings.register_profile("nearcast", deadline=None, max_examples=100)
settings.load_profile("nearcast")
