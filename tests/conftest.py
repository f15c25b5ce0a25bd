"""What holds for all tests: how long an example of hypothesis takes says more of the machine than of the code."""

from hypothesis import settings

settings.register_profile("patient", settings(), deadline=None)
settings.load_profile("patient")
