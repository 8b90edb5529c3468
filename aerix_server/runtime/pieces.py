"""Delegation: what an agent gives to others. An implementer does a piece, a verifier looks, a fail is tried again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from aerix_server.pool.port import MemberState, PoolFailed
from aerix_server.protocol.events import AgentKind, AgentSpawn, Verify
from aerix_server.runtime.agent import run_agent
from aerix_server.runtime.agent_state import Agent
from aerix_server.runtime.build import Kind, build_agent
from aerix_server.runtime.context import Draft
from aerix_server.runtime.opening import opening_for, refuse_too_long
from aerix_server.runtime.order import Attempt, Order, Verdict, brief_drafts, outcome_json, verdict_of, verifier_text
from aerix_server.runtime.ports import Definition, Ended
from aerix_server.runtime.prompt import DELEGATE, may_delegate
from aerix_server.runtime.run import Run
from aerix_server.runtime.turn import VERDICT_SCHEMA
from aerix_server.tools.base import Output, Tool, ToolError

VERIFIER_TOOLS: Final = ("read", "bash", "grep", "glob", "repo_map")


def delegating(run: Run, agent: Agent) -> Agent:
    """The agent, able to give work to others."""
    agent.tool_context = replace(agent.tool_context, pieces=Pieces(run, agent))
    return agent


class Pieces:
    """A pieces port: the pieces of one caller."""

    def __init__(self, run: Run, caller: Agent) -> None:
        self._run = run
        self._caller = caller

    async def run(self, call: str, brief: str, check: str, definition: str | None, member: str | None) -> Output:
        """The JSON outcome of a piece and the files its agents touched. Raises ToolError, PoolFailed."""
        found = self._definition(definition)
        order = Order(
            id=f"{self._caller.name}.{call}",
            brief=brief,
            check=check,
            definition=found,
            member=await self._member(member or (found.member if found else None)),
        )
        return await self._try(order)

    async def _try(self, order: Order) -> Output:
        """Implement and verify, at most `delegation.retries` times more."""
        retries = self._run.ports.settings.delegation.retries
        attempts: list[Attempt] = []
        for number in range(retries + 1):
            implemented = await self._implement(order, number, attempts)
            if implemented.ended.outcome != "final":
                attempts.append(implemented)
                break
            attempts.append(await self._verify(order, number, implemented))
            if attempts[-1].passed:
                break
        return outcome_json(attempts)

    async def _implement(self, order: Order, number: int, before: list[Attempt]) -> Attempt:
        name = order.id + (f".r{number}" if number else "")
        agent = self._build(order, name, "implementer", self._tools(order.definition), order.definition)
        drafts = brief_drafts(order, self._run.prompts, before)
        shared = agent.member.member == self._caller.member.member
        ended = await self._live(agent, order, "implementer", drafts, fork=shared)
        return Attempt(ended, tuple(agent.files), tuple(agent.checks))

    async def _verify(self, order: Order, number: int, done: Attempt) -> Attempt:
        name = f"{order.id}.v{number + 1}"
        tools = {tool: self._run.tools[tool] for tool in VERIFIER_TOOLS}
        agent = self._build(order, name, "verifier", tools, None)
        text = verifier_text(order, self._run.prompts["verifier"], done)
        ended = await self._live(agent, order, "verifier", [Draft("user", "verify", text)], fork=False)
        verdict = verdict_of(ended)
        await self._tell(agent, order, number + 1, verdict)
        return replace(done, verdict=verdict, checks=(*done.checks, *agent.checks))

    async def _tell(self, agent: Agent, order: Order, attempt: int, verdict: Verdict) -> None:
        told = "pass" if verdict.passed else "fail"
        facts = {"piece": order.id, "attempt": attempt, "verdict": told, "reason": verdict.reason}
        self._run.send(
            Verify(
                agent=agent.name,
                piece=order.id,
                attempt=attempt,
                verdict="pass" if verdict.passed else "fail",
                reason=verdict.reason,
                checks=list(agent.checks),
            )
        )
        await self._caller.fire("Verify", **facts, checks=[check.model_dump() for check in agent.checks])

    def _build(
        self,
        order: Order,
        name: str,
        kind: AgentKind,
        tools: dict[str, Tool[Any]],
        definition: Definition | None,
    ) -> Agent:
        settings = self._run.ports.settings.delegation
        agent = build_agent(
            self._run,
            Kind(
                name=name,
                kind=definition.name if definition else kind,
                member=order.member,
                tools=tools,
                depth=self._caller.depth + 1,
                max_turns=(definition.max_turns if definition else None) or settings.max_turns,
                final=VERDICT_SCHEMA if kind == "verifier" else None,
            ),
        )
        return delegating(self._run, agent) if DELEGATE in tools else agent

    async def _live(self, agent: Agent, order: Order, kind: AgentKind, drafts: list[Draft], *, fork: bool) -> Ended:
        run = self._run

        async def start() -> None:
            run.send(
                AgentSpawn(
                    agent=agent.name,
                    parent=self._caller.name,
                    kind=kind,
                    definition=order.definition.name if order.definition and kind == "implementer" else None,
                    member=agent.member.member,
                    depth=agent.depth,
                    brief=order.brief,
                    check=order.check,
                )
            )
            await agent.fire("AgentSpawn", brief=order.brief)
            answer = await agent.fire("SubagentStart", brief=order.brief)
            told = [Draft("user", "hook context", f"# Hook context\n\n{answer.context}")] if answer.context else []
            if fork:
                await agent.context.fork(self._caller.context, [*told, *drafts])
            else:
                await agent.context.create(
                    agent.member.member, (), [*await opening_for(run, agent.member), *told, *drafts]
                )
            refuse_too_long(agent)

        try:
            return await run_agent(agent, start)
        finally:
            # Here, not with the piece's result: one that is cancelled gives none, and what it changed stays changed.
            self._caller.files.update(agent.files)

    def _tools(self, definition: Definition | None) -> dict[str, Tool[Any]]:
        """All tools or the definition's, without `agent` where nobody deeper may be asked."""
        chosen = definition.tools if definition and definition.tools is not None else self._run.tools
        known = {name: self._run.tools[name] for name in chosen if name in self._run.tools}
        return may_delegate(known, self._caller.depth + 1, self._run.ports.settings.delegation.depth)

    def _definition(self, name: str | None) -> Definition | None:
        if name is None:
            return None
        known = self._run.ports.definitions
        if name not in known:
            told = f"the definitions are {', '.join(known)}" if known else "none are defined: leave definition out"
            raise ToolError(f"there is no agent definition {name!r}; {told}")
        return known[name]

    async def _member(self, name: str | None) -> MemberState:
        if name is None or name == self._caller.member.member:
            return self._caller.member
        try:
            return await self._run.ports.pool.member(name)
        except PoolFailed as error:
            if error.code != "unknown_member":
                raise
            raise ToolError(f"{error.message} Leave member out to use {self._caller.member.member}.") from error
