"""Tools declared in system messages: accepted, visible, callable, validated (Kimi K3)."""
