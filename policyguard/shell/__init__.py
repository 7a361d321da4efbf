"""Shell command lines: what they run, which patterns match them, when two are alike.

`reader` turns a text into a `CommandLine`; `pattern_set` matches it; `normal_form` and `read_only`
serve limits. What programs do with their arguments is data of the policy (`model.shell`). The
modules are imported one by one, since the parser takes long to load.
"""
