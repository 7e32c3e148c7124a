"""What a course hands out: a copy of the repository without solutions, and assignment sheets."""
