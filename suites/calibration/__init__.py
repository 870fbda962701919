"""What an official endpoint does, for ``kvv calibrate``."""

#: no run selects it
ORDER = None
