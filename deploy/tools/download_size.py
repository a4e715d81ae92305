"""Says how much `pip install REQUIREMENT` would download, before it does.

pip resolves without installing (it reads metadata only, where the index serves
them apart from the files), then each chosen file's server is asked for its size.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request


def chosen_files(requirement):
    """[(name and version, address)] of everything that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.json")
        subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run",
             "--report", report, requirement],
            check=True, stdout=sys.stderr)
        with open(report, encoding="utf-8") as file:
            installs = json.load(file)["install"]
    return [(f"{item['metadata']['name']} {item['metadata']['version']}",
             item["download_info"]["url"]) for item in installs]


def size_bytes(address):
    """The file's size, or None where its server does not say."""
    parts = urllib.parse.urlsplit(address)
    try:
        if parts.scheme == "file":
            return os.path.getsize(urllib.parse.unquote(parts.path))
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=30) as response:
            return int(response.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def main():
    files = chosen_files(sys.argv[1])
    sizes = [size_bytes(address) for _, address in files]
    known = sum(size for size in sizes if size is not None)
    torch = next((name for name, _ in files if name.startswith("torch ")), sys.argv[1])
    text = f"{known / 1e6:,.0f} MB in {len(files)} files ({torch} and what it needs)"
    unknown = sizes.count(None)
    if unknown:
        text += f", and {unknown} files whose size the index does not say"
        text += " (a CUDA build is about 3 GB in total)"
    print(text)


if __name__ == "__main__":
    main()
