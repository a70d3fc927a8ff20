"""Settings for a user's own rows: a short recipe with its reasons, and the number of updates."""

from cirf.fitting.draft import Choice, draft
from cirf.fitting.fit import Fitted, fit
from cirf.fitting.updates import Updates, size_in_name, updates_of

__all__ = ["Choice", "Fitted", "Updates", "draft", "fit", "size_in_name", "updates_of"]
