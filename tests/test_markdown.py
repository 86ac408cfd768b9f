from tagseg._markdown import markdown_table


def test_columns_of_numbers_are_aligned_right() -> None:
    assert markdown_table(("", "mIoU", "on"), [["a", "5.0 ± 0.1", "CPU"], ["bc", "-", "GPU"]]).splitlines() == [
        "|     |      mIoU | on  |",
        "| --- | --------: | --- |",
        "| a   | 5.0 ± 0.1 | CPU |",
        "| bc  |         - | GPU |",
    ]
