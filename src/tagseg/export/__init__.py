"""What a model makes for others: pseudo labels to train the next network on, and masks for annotation tools."""
