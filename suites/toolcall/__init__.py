"""Tool calls in K2VV form: when does the model call, and do the calls fit their schemas?"""

#: place in the report
ORDER = 160
