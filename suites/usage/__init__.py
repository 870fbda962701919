"""Token accounting: arithmetic, published constants, and the differences the K3 template fixes."""

#: place in the report
ORDER = 80
