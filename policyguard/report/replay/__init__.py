"""Reports of a replay: figures as text, Markdown, JSON, JUnit and HTML."""
