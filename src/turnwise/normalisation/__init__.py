"""Conversations as people have them, in the forms that a template takes.

capabilities.py   what a template does with each form of a message: a view of `analysis/form_table.py`
normaliser.py     a conversation changed as far as the template needs it, with a list of the changes
losses.py         text that was given and is not in the rendering
"""
