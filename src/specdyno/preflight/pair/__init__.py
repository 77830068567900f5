"""Is the exact target, draft, method and draft length supported on this engine? Answered from files alone.

`support` holds what each engine has, `architectures` which models it knows, `rules` every rule with its source; the
modules beside them hold the judgements. `check.check_pairs` applies them to a plan.
"""
