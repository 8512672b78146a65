"""What generated code calls: values, operators, methods, filters, tests, formatting, and the budgets."""
