"""Pages of the documentation site that are not files below docs/: a hook of mkdocs.

README, CONTRIBUTING and CHANGELOG become pages, and every public module gets a reference page from
its docstrings. Links between the repository's Markdown files keep working in both places.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
REPOSITORY_PAGES = {"index.md": "README.md", "CONTRIBUTING.md": "CONTRIBUTING.md",
                    "CHANGELOG.md": "CHANGELOG.md"}  # fmt: skip
# Package -> its public modules, in the order in which a reader wants them.
PUBLIC_MODULES = {
    "kctl.testing": ("kafka_broker", "topic_records", "pytest_plugin", "scripted_broker"),
    "kctl.admin": (
        "admin_client", "topics", "configs", "config_plan", "groups", "committed_offsets",
        "elections", "election_plan", "transactions", "transaction_abort", "reassignment_job",
    ),
    "kctl.client": ("producer", "consumer", "group_consumer"),
    "kctl.records": (
        "builder", "memory_records", "record", "record_batch", "legacy", "compression", "control",
        "columnar",
    ),
    "kctl.dump": ("dump", "values", "filters", "filtered_dump", "stats", "file_stats"),
    "kctl.export": ("export", "options", "live", "live_plan", "manifest", "rows"),
}  # fmt: skip
_LINK = re.compile(r"\[([^\]]+)\]\((?![a-z]+:)([^)#]+)(#[^)]*)?\)")


def module_pages() -> dict[str, str]:
    """Return the path of each reference page and its Markdown."""
    pages = {}
    for package, modules in PUBLIC_MODULES.items():
        sections = "\n\n".join(f"::: {package}.{module}" for module in modules)
        pages[f"api/reference/{package}.md"] = f"# {package}\n\n::: {package}\n\n{sections}\n"
    return pages


def page_of_the_repository(source: str) -> str:
    """Return a Markdown file of the repository's root with links as seen from docs/."""
    text = (ROOT / source).read_text(encoding="utf-8")
    text = re.sub(r"\]\(docs/decisions/\)", "](decisions/README.md)", text)
    text = text.replace("](docs/", "](")
    return text.replace("](README.md", "](index.md")


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    generated = {name: page_of_the_repository(source) for name, source in REPOSITORY_PAGES.items()}
    for path, text in (generated | module_pages()).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Point links to the repository's root at its pages; leave links to other files as text."""
    del config
    docs = ROOT / "docs"

    def seen_from_docs(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = (docs / page.file.src_uri).parent / target
        inside = Path(*path.parts).resolve()
        if inside.is_relative_to(docs):
            name = inside.relative_to(docs).as_posix()
            is_page = files.get_file_from_path(name) is not None
            return match[0] if is_page else text
        name = inside.relative_to(ROOT).as_posix()
        wanted = {source: page for page, source in REPOSITORY_PAGES.items()}.get(name)
        if wanted is None:
            return text
        return f"[{text}]({'../' * page.file.src_uri.count('/')}{wanted}{anchor})"

    return _LINK.sub(seen_from_docs, markdown)
