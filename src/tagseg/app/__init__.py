"""The page of `tagseg app`: try a model, look at a run. Needs the extra `app`."""
