"""One running stack: its processes, its state folder and its control port."""
