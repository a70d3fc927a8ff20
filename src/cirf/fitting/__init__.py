"""Settings for a user's own rows: a short recipe with its reasons, and the number of updates."""

from cirf.fitting.cost import Updates, size_in_name, updates_of
from cirf.fitting.draft import Choice, draft
from cirf.fitting.fit import Fitted, fit

__all__ = ["Choice", "Fitted", "Updates", "draft", "fit", "size_in_name", "updates_of"]
