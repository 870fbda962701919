"""Bad requests are refused in the right form, and the endpoint survives them."""

#: place in the report
ORDER = 110
