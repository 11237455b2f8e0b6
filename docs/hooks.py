"""What MkDocs cannot do by itself: pages made of files outside docs/, of examples and of notebooks, and formulas.

Links are written as they work in the repository (`../benchmarks/README.md`), and are rewritten here for the site.
Formulas are written in LaTeX, as GitHub shows it, and become MathML, which browsers show without a script.
"""

import ast
import base64
import json
import posixpath
import re
from pathlib import Path
from typing import Any

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "benchmarks/README.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CITATION.cff": "CITATION.cff",
    "LICENSE": "LICENSE.txt",
}
"""Files outside docs/ and what stands for them on the site; index.md is a page of its own."""

LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
"""The path of a relative Markdown link."""

CODE_OR_FORMULA = re.compile(
    r"^ {0,3}(?P<fence>`{3,}|~{3,}).*?^ {0,3}(?P=fence)`*\s*?$"
    r"|(?P<ticks>`+)[^`].*?(?P=ticks)"
    r"|\$\$(?P<block>.+?)\$\$"
    r"|\$(?!\s)(?P<inline>[^$\n]+?)(?<!\s)\$",
    re.MULTILINE | re.DOTALL,
)
"""Code, in which a dollar sign is a dollar sign, or a formula."""

FORMULA_MARK = re.compile(r"(?:<p>)?formula-(\d+)-here(?:</p>)?")
"""What stands for a formula while Markdown is read, which would take LaTeX for Markdown."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Keep letters such as β in anchors, as GitHub does."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files."""
    for source, page in PAGES.items():
        if page != "index.md":
            files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "examples.md", content=examples_page()))
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=notebook_page(notebook)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make the links of the repository links of the site, and take formulas out."""
    uri = page.file.src_uri
    sources = {page: source for source, page in PAGES.items() if page != "index.md"}
    source = sources.get(uri, f"docs/{uri}")
    formulas: list[str] = []
    page.meta["formulas"] = formulas
    markdown = CODE_OR_FORMULA.sub(lambda found: formula_mark(found, formulas), markdown)
    return LINK.sub(lambda found: site_link(found[1], source, uri), markdown)


def formula_mark(found: re.Match[str], formulas: list[str]) -> str:
    """Code as it is; for a formula its mark, with its MathML appended to `formulas`."""
    latex = found["block"] or found["inline"]
    if latex is None:
        return found[0]
    display = "block" if found["block"] else "inline"
    formulas.append(latex2mathml.converter.convert(latex, display=display))
    return f"formula-{len(formulas) - 1}-here"


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the formulas in."""
    formulas = page.meta["formulas"]
    return FORMULA_MARK.sub(lambda found: formulas[int(found[1])], html)


def site_link(link: str, source: str, page: str) -> str:
    """The link to the page for `link` in the file `source` of the repository, from `page` of the site."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link))
    if target in PAGES:
        target = PAGES[target]
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/").replace(".ipynb", ".md")
    elif target.startswith("examples/"):
        target = "examples.md"
    else:
        return link
    return posixpath.relpath(target, posixpath.dirname(page) or ".")


def examples_page() -> str:
    """All of examples/ on one page, each with its docstring's sentence."""
    parts = ["# Examples", "The files of `examples/`; the tests run them against the real packages."]
    for path in sorted((ROOT / "examples").glob("**/*.py")):
        text = path.read_text(encoding="utf-8")
        title = (ast.get_docstring(ast.parse(text)) or path.name).splitlines()[0]
        parts += [f"## {path.relative_to(ROOT / 'examples').as_posix()}", title, f"```python\n{text.rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"


def notebook_page(path: Path) -> str:
    """A notebook as Markdown: its text, its code and the outputs that are stored in it."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"]).rstrip()
        if cell["cell_type"] == "markdown":
            parts.append(text)
        elif text:
            parts.append(f"```python\n{text}\n```")
            parts += [output_markdown(output) for output in cell["outputs"]]
    return "\n\n".join(parts) + f"\n\n*This page is the notebook `docs/notebooks/{path.name}`, which the tests run.*\n"


def output_markdown(output: dict[str, Any]) -> str:
    """One output of a cell: a picture, or text."""
    data = output.get("data", {})
    if "image/png" in data:
        image = base64.b64encode(base64.b64decode("".join(data["image/png"]))).decode()
        return f"![output](data:image/png;base64,{image})"
    text = "".join(output.get("text") or data.get("text/plain") or "")
    return f"```text\n{text.rstrip()}\n```"
