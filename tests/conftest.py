"""What holds for every test: nothing is ever asserted about time, so no example has a deadline either."""

from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
