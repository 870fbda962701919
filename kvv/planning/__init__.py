"""What a run will ask, before anything is sent: configuration, selection, order, sizes, early stopping."""
