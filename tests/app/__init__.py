"""The page of `tagseg app`, as browsers and programs see it."""
