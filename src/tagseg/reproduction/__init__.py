"""The paper's tables: the runs behind each, the commands that reproduce them, and our results beside the paper's."""
