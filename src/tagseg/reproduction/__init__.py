"""The paper's tables: the runs behind each, the commands that reproduce them, and our figures beside the paper's."""
