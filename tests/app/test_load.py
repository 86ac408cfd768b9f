"""Clients at the same time: every request is answered, and none by another's answer."""

from tests.app.load import send_load


def test_every_client_gets_its_own_answers(url: str) -> None:
    load = send_load(url, clients=32, seconds=0, size="64")
    assert load.num_answers == 32
