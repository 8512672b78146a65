"""Where rendered text came from: trails beside values, followed to pieces when asked."""
