"""The paper's tables: the commands that redo them, and our figures beside the paper's."""
