"""``python -m jetops.bench``: the operators against what one would use without them."""
