from lantern import Bulb  # noqa: F401 - of the package of that name
