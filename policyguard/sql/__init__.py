"""SQL texts: which statements they hold, and what those do.

`parser` splits a text into statements and parses them, `ambiguities` refuses texts that databases
read differently, `statements` says what each statement does, `conditions` whether a WHERE selects
anything. The modules are imported one by one: the parser is an extra, and takes long to load.
"""
