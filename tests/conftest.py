"""How much property tests try: little by default, the same each time.

``pytest --hypothesis-profile=explore`` tries twenty times as much, at random.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("quick"), derandomize=False, max_examples=500
)
settings.load_profile("quick")
