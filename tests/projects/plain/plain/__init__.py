"""Nothing but the compiled half."""
