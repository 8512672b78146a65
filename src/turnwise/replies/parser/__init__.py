"""A reply is read by a grammar: the plan of what is watched for, the stream, and everything that a call may hold."""
