"""Tables of recordings whose folders also hold files that are no part of them any more."""
