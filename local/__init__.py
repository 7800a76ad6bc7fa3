"""The local cloud: runs everything that template.yaml declares on one machine. Never shipped."""
