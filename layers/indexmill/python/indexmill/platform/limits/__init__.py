"""Request limits: how much a caller may ask within a window, whichever process answers."""
