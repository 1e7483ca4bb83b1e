"""The ``pyjet`` command. In the source tree this package is ``cli``; it is installed as ``pyjet.cli``."""
