"""The resident service: one process that owns the sessions which hooks and other programs use.

`protocol` is what goes over the wire, `handlers` what each request does to the guard, `app` the
ASGI application, and `server` its process.
"""
