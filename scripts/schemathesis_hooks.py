"""A hook of schemathesis, for scripts/soak: a request that may wait for a busy lock waits for some milliseconds only."""
import schemathesis

LONGEST_WAIT = 3_600_000


@schemathesis.hook
def before_call(context, case, kwargs):
    wait = case.body.get("wait_ms") if isinstance(case.body, dict) else None
    # Not what is to be refused.
    if type(wait) is int and 5 < wait <= LONGEST_WAIT:
        case.body["wait_ms"] = 5
