"""Suggest: labelled runs → overrides of a policy with a guarantee, and signatures."""

from policyguard.simulate.suggest.suggestion import Request, SuggestError, suggest

__all__ = ["Request", "SuggestError", "suggest"]
