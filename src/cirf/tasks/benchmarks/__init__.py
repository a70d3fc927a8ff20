"""The tasks that come with the package, a file each."""
