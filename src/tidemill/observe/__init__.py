"""What a run shows of itself: progress, the journal of what happened, the display on a terminal, metrics."""
