"""skill: loads the text of an installed skill, or lists the skills."""

from __future__ import annotations

from collections.abc import Mapping

from aerix_server.tools.base import Name, Output, Tool, ToolContext, ToolError, ToolInput

_ARGUMENTS = "$ARGUMENTS"


class SkillInput(ToolInput):
    name: Name | None = None
    args: Name | None = None
    list: bool = False


class Skill(Tool[SkillInput]):
    name = "skill"
    description = "Loads the instructions of the skill name, with args put in; or lists the skills."
    input_model = SkillInput
    only_looks = True

    async def run(self, call: SkillInput, ctx: ToolContext) -> Output:
        if call.name is not None:
            return Output(_load(ctx.skills, call.name, call.args or ""))
        if call.list:
            return Output(_known(ctx.skills))
        raise ToolError("name is missing: give the name of a skill, or list true", "Call skill with list true.")


def _load(skills: Mapping[str, str], name: str, arguments: str) -> str:
    text = skills.get(name)
    if text is None:
        instead = "Use one of these names." if skills else "Go on without a skill."
        raise ToolError(f"there is no skill {name!r}; {_known(skills)}", instead)
    if _ARGUMENTS in text:
        return text.replace(_ARGUMENTS, arguments)
    return f"{text}\n\nArguments: {arguments}" if arguments else text


def _known(skills: Mapping[str, str]) -> str:
    return "skills: " + ", ".join(sorted(skills)) if skills else "no skills are installed"
