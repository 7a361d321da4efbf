"""Rules about a whole policy. They do not run on files that are only part of one."""
