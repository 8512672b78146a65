"""What generated code calls.

Values, operators, methods, filters, tests, formatting, and the budgets.
"""
