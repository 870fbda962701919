"""The catalogue of faults and quirks, by id.

``FAULTS`` holds every fault that the endpoint can show, ``NOT_SHOWABLE`` the rest with the reason, ``QUIRKS`` the
correct but unusual behaviours (selected as ``quirk:NAME``). ``ALL`` is what a selection may name.
"""

from kvv.mockserver.faults import (
    a_decoding,
    b_arguments,
    b_tools,
    c_streaming,
    d_reasoning,
    e_format,
    f_usage,
    g_vision,
    h_context,
    i_errors,
    j_degradation,
    k_values,
)
from kvv.mockserver.faults import quirks as _quirks
from kvv.mockserver.faults.model import ServerFault

_MODULES = (
    a_decoding,
    b_tools,
    b_arguments,
    c_streaming,
    d_reasoning,
    e_format,
    f_usage,
    g_vision,
    h_context,
    i_errors,
    j_degradation,
    k_values,
)

FAULTS: dict[str, ServerFault] = {
    fault.id: fault
    for fault in sorted((fault for module in _MODULES for fault in module.FAULTS), key=lambda fault: fault.id)
}
QUIRKS: dict[str, str] = {quirk.id.removeprefix("quirk:"): quirk.summary for quirk in _quirks.QUIRKS}
NOT_SHOWABLE: dict[str, str] = {}
ALL: dict[str, ServerFault] = {**FAULTS, **{quirk.id: quirk for quirk in _quirks.QUIRKS}}
