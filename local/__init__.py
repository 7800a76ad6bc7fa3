"""The cloud on a laptop: everything here is read from template.yaml and never shipped."""
