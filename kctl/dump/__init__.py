"""Reading log directories without a broker; yields values, prints nothing."""
