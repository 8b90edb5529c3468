"""web_fetch and web_search: reserved names. Every call is refused, so that a model stops asking."""

from __future__ import annotations

from aerix_server.tools.base import Name, Output, Refusal, Tool, ToolContext, ToolInput


class FetchInput(ToolInput):
    url: Name


class SearchInput(ToolInput):
    query: Name


class WebFetch(Tool[FetchInput]):
    name = "web_fetch"
    description = "Reserved; every call is refused."
    input_model = FetchInput

    async def run(self, call: FetchInput, ctx: ToolContext) -> Output:
        raise Refusal(_reserved(self.name))


class WebSearch(Tool[SearchInput]):
    name = "web_search"
    description = "Reserved; every call is refused."
    input_model = SearchInput

    async def run(self, call: SearchInput, ctx: ToolContext) -> Output:
        raise Refusal(_reserved(self.name))


def _reserved(name: str) -> str:
    return f"{name} is a reserved name; no tool of this name is installed. Work with the files here: read, grep, bash"
