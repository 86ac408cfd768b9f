#!/bin/sh
# Install tagseg with the extra onnx into a new environment, and try it; the Dockerfile and `make release` run this.
#
#   sh docker/install.sh FOLDER      in the folder of the repository
set -eu
target=$1
uv venv --quiet --python "${PYTHON:-python3}" "$target"
uv pip install --quiet --python "$target/bin/python" --constraint constraints.txt ".[onnx]"
"$target/bin/tagseg" predict src/tagseg/photos/chelsea.jpg -o "$target/trial"
test -f "$target/trial/chelsea_mask.png"
rm -r "$target/trial"
