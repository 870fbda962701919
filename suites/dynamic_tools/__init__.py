"""Tools declared in system messages: accepted, visible, callable, validated (Kimi K3)."""

#: place in the report
ORDER = 40
