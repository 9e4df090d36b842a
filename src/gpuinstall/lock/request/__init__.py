"""What is requested, and where it comes from: the folder's files, a script, earlier commands, other tools' locks."""
