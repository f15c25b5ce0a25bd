"""Laws are tried on many examples, each as slow as a busy machine makes it: how long one takes says nothing."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
