"""Why rows are left out, and the file that has those which are bad."""

REJECTED_FILE = "rejected.jsonl"

KINDS = {
    "blank": "the line is blank",
    "bad-encoding": "the bytes of the row are not UTF-8",
    "bad-json": "the row is not JSON, or its JSON has no one meaning (a key twice, NaN)",
    "unknown-shape": "there is no conversation in the row",
    "unread-column": "a column that changes what the row means is neither read, nor carried, nor dropped by the recipe",
    "bad-column": "a column that the recipe names or needs is not in the row",
    "bad-message": "a message, a tool or an option of the row is wrong",
    "refused": "the template refuses the conversation",
    "loses-text": "the template would not write, or not train, all that the row holds",
    "empty-reply": "a trained reply has no text and no call",
    "orphan-result": "a tool's result belongs to no call of the row",
    "unbalanced-reasoning": "a marker of reasoning in a reply lacks its counterpart",
    "template-limit": "the conversation exceeds a budget of the template engine",
    "tokenizer": "the tokenizer cannot encode the row",
    "nothing-trained": "no token of the row is trained",
    "row-too-large": "the row has more bytes than are read for one row",
    "too-long": "the row does not fit max_length",
    "duplicate": "another row has the same ids and labels",
}
"""The kinds of reasons, and what each means."""
FILTER_KINDS = ("blank", "too-long", "duplicate")
"""Those for which a row is filtered, not rejected."""
