"""Shell command lines: what they run, which patterns match them, when two are alike.

`reader` turns a text into a `CommandLine`; `read_only` tells whether it changes nothing,
`pattern_set` matches it, `touched` finds the paths and hosts that it names. Nothing uses
`normal_form` yet. What programs do with their arguments is data of the policy (`model.shell`). The
modules are imported one by one, since the parser takes long to load.
"""
