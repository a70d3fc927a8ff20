"""The one exception a user is meant to see."""


class CirfError(Exception):
    """A mistake in the input or the surroundings, said in one sentence.

    The message names the file, row or key at fault and what to do about it. The command line prints it on
    one line and ends with exit code 2; nothing finished is lost.
    """
