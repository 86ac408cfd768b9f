"""Fast paths of prediction: each can be switched off, and is tested against the plain network."""
