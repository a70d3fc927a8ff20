"""English words that say how a sentence is built rather than what it is about, and those that deny.

Words of quantity and comparison (``more``, ``each``, ``half``, ``per``, ``both``) are in neither list: in a solution they
change the result.
"""

from __future__ import annotations


def _listed(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTION_WORDS = _listed(
    """
    a an the this that these those there here such same other another some any
    i me my mine we us our ours you your yours he him his she her hers it its they them their theirs
    myself ourselves yourself himself herself itself themselves who whom whose which what where when while why how
    am is are was were be been being do does did doing done have has had having
    will would shall should can could may might must let lets let's
    and or but so then thus hence therefore because since as if though although however also too again
    of to in on at by for from with into onto upon about over under between among through during before after
    just very quite rather really simply already still yet even now next first finally
    i'm we're you're they're he's she's it's that's there's i've we've you've they've
    i'd we'd you'd he'd she'd they'd i'll we'll you'll he'll she'll they'll it'll
    """
)

NEGATIONS = _listed("no not never none nothing nobody nowhere neither nor cannot without unless except hardly false")
"""Besides what ends in ``n't``."""
