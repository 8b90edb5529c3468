"""For every test: hypothesis without its clock, since other programs use this machine's cores too, and an interrupt
that reaches what a test starts, which a runner in the background would have it ignore."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
