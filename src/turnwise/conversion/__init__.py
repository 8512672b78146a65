"""Write a template in a declarative dialect, and verify the result.

1. `observed_turns.py`: two rounds whose every text is known are rendered. The pieces tell where
   each message is, so the text between two messages *is* what the template writes there. Nothing is
   guessed from its source.
2. The writer of the dialect (`dialects/`) writes these turns as one or more sources; what it cannot
   express, it leaves out.
3. `verification.py`: each source is read again by the exact rules of its software, and compared with
   the template on every conversation that the dialect is for, special tokens included. White space
   after a last reply is not compared: it is never sent to a model.
4. `features.py`: if they differ, the difference gets a name, and the error shows the smallest
   conversation:

    xtuner cannot express this template: the number of the round: '0, 1, 2'

What may be lost has a name for the argument `without`: a topic ("tools", "reasoning", ...), one of
`features.LOSSES` ("white space", "empty messages", ...), or one option. It is then not compared. An
option that the template has a value for is decided, and so not lost.
"""
