"""template.yaml as the plain values that the emulator runs."""
