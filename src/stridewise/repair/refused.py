"""Why a candidate can't be tried, or must not be proposed."""


class Refused(Exception):
    """A candidate that is not proposed. Its text is the reason: a clause that a person reads, without a full stop."""
