"""What people read: the tables and sentences of a terminal."""
