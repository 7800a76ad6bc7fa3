"""The template: template.yaml, translated and resolved to plain values."""
