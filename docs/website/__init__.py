"""The documentation site: what the pages of the repository become, and the reference made from code.

| module | what |
|---|---|
| `hooks` | what mkdocs calls while it builds the site (`mkdocs.yml`) |
| `pages` | the repository's pages and the files they link to, and their places on the site |
| `reference` | the generated pages, by their place |
| `commands` | the commands of a typer application |
| `settings` | the settings of a run, the keys of files and the columns of records |
| `policies` | the registered policies with parameters and defaults |
| `examples` | the blocks of a page, run in order |
| `markdown` | tables, and what Python's Markdown wants otherwise than GitHub's |

`make docs`, or `python -m mkdocs build --strict`, writes the site to `site/`.
"""
