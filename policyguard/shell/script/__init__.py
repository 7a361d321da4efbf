"""One reading of a script: its statements, words, variables and functions, and what they run.

`statements` walks the syntax tree, `word_reader` reads words, `wrapped` the commands that programs
run in turn, and `variables` and `functions` hold what the script has defined so far.
"""
