from tagseg._json import as_json, differences


def test_differences_name_each_field() -> None:
    there = {"recipe": {"lr": 0.01, "scales": [1.0, 1.5]}, "classes": ["cat"]}
    here = as_json({"recipe": {"lr": 0.5, "scales": (1.0, 1.5)}, "classes": ("cat",), "crf": True})
    assert list(differences(there, here)) == ["lr is 0.01 there, 0.5 here", "crf is null there, true here"]
    assert list(differences(["a" * 50], [])) == [f' is ["{"a" * 35}... there, [] here']
