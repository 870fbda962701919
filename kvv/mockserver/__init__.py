"""The reference endpoint: a correct Kimi-K3-style server over real HTTP, with an answer key and switchable faults.

It shares no code with the rules, the decoder and the suites of kvv, so that it cannot mirror their mistakes.
"""

from kvv.mockserver.config import Answer, ReferenceConfig, Reply
from kvv.mockserver.faults import FAULTS, NOT_SHOWABLE, QUIRKS
from kvv.mockserver.faults.model import Fault
from kvv.mockserver.server import ReferenceServer, serve_forever

__all__ = [
    "FAULTS",
    "NOT_SHOWABLE",
    "QUIRKS",
    "Answer",
    "Fault",
    "ReferenceConfig",
    "ReferenceServer",
    "Reply",
    "serve_forever",
]
