"""Proven segments: what a template writes for one message, as a function of the few facts that it reads.

A template mostly copies texts of messages to its output, and asks little about them: the role, which keys there are,
whether it is the first or the last message, whether `</think>` is in the content. A program is run once with messages
that record every such question (`symbols.py`, `recorder.py`):

    message 3 of `{% for message in messages %}`      facts                               answers
                                                      role                                'assistant'
                                                      kind of content                     'text'
                                                      '</think>' in content               False
                                                      (i + 1) == n                        False
    wrote  '<|im_start|>assistant\\n', content, '<|im_end|>\\n'

The next message with the same answers gets the same segment without running the program. Answers form a tree, which is
compiled to Python (`facts.py`, `code.py`): a renderer of this template that is nearly as fast as one written by hand.

It is sound by construction: what was not recorded was not read. A recorded value has no other way to give an answer
than to record the question; every function of the runtime refuses such values unless it is listed in `functions.py`.
Where a template asks for more, or state gets from one round of a loop to the next other than in a namespace, the path
ends in "refused", and the program runs as usual. Origins are recorded with the texts (`sources.py`).
"""
