"""Renderers of findings, figures and policies: text, JSON, SARIF, JUnit, Markdown and HTML."""
