"""docs/architecture.md says who may include whom; the code does as it says."""

import pytest

import tree

# The table's words for folders.
WORDS = {
    "nothing": [],
    "proto": ["proto"],
    "proto/rpc": ["proto/rpc", "proto/ckptd/v1"],
    "layout": ["storage/layout"],
    "file_system": ["storage/file_system"],
    "storage": ["storage"],
    "storage/layout": ["storage/layout"],
    "storage/format": ["storage/format"],
    "runtime": ["daemon/runtime"],
    "everything in daemon": ["daemon", "storage", "proto"],
    "the C ABI": ["client/cpp"],
    "the planner": ["daemon/coordinator"],
}
MODULES = tree.module_table()
PRODUCT_FOLDERS = ["client", "daemon", "proto", "storage"]


def module_of(path):
    """The longest module folder that the file lies in; None if no module claims it."""
    owners = [module for module in MODULES if str(path).startswith(module + "/")]
    return max(owners, key=len, default=None)


def allowed_folders(module):
    folders = [module]
    for word in MODULES[module].split(","):
        folders += WORDS[word.strip()]
    return folders


def test_the_module_table_uses_only_words_that_this_test_knows():
    words = {word.strip() for text in MODULES.values() for word in text.split(",")}
    assert len(MODULES) >= 10
    assert words <= WORDS.keys()


@pytest.mark.parametrize("module", MODULES)
def test_a_documented_module_exists(module):
    assert (tree.ROOT / module).is_dir()


def test_every_product_file_lies_in_a_documented_module():
    strays = [str(path) for path in tree.files(*tree.CXX_SUFFIXES, ".proto", folders=PRODUCT_FOLDERS)
              if module_of(path) is None]
    assert strays == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_includes_only_what_the_table_allows(module):
    allowed = allowed_folders(module)
    breaks = []
    for path in tree.files(*tree.CXX_SUFFIXES, folders=PRODUCT_FOLDERS):
        if module_of(path) != module:
            continue
        for number, name in tree.includes(path):
            if not any(name.startswith(folder + "/") for folder in allowed):
                breaks.append(f"{path}:{number} includes {name}")
    assert breaks == []


def test_no_product_code_includes_test_code():
    breaks = [f"{path}:{number} includes {name}"
              for path in tree.files(*tree.CXX_SUFFIXES, folders=PRODUCT_FOLDERS)
              for number, name in tree.includes(path) if name.startswith("tests/")]
    assert breaks == []
