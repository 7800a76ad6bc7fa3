"""Types that every service shares: no I/O and no import of the library."""
