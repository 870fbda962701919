"""The reference endpoint: a correct Kimi-K3-style server over real HTTP, with an answer key and switchable faults.

It shares no code with the rules, the decoder and the suites of kvv, so that it cannot mirror their mistakes.
"""

from kvv.mockserver.config import KeyedAnswer, MockConfig, Reply
from kvv.mockserver.faults import FAULTS, NOT_SHOWABLE, QUIRKS
from kvv.mockserver.faults.model import ServerFault
from kvv.mockserver.server import MockServer, serve_forever

__all__ = [
    "FAULTS",
    "NOT_SHOWABLE",
    "QUIRKS",
    "KeyedAnswer",
    "MockConfig",
    "MockServer",
    "Reply",
    "ServerFault",
    "serve_forever",
]
