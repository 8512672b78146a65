"""The roles of messages, as templates and datasets spell them."""

ASSISTANT_ROLES = ("assistant", "model")
RESULT_ROLES = ("tool", "function", "ipython", "observation", "environment")
SYSTEM_ROLES = ("system", "developer")
