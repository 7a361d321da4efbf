"""Shell command lines: what they run, which patterns match them, whether they change anything.

`reader` turns a text into a `CommandLine`, by `script` unless it is a plain list of commands;
`read_only` tells whether it changes nothing, `pattern_set` matches it, `touched` finds the paths
and hosts that it names. What programs do with their arguments is data of the policy
(`model.shell`). The modules are imported one by one, since the parser takes long to load.
"""
