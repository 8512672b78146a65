"""A server as its users write it: replies of an engine, read as they come, become OpenAI's stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import turnwise
from turnwise import ChatMessage, ChunkStream, Event, Message, Session, Template, TurnwiseError


@dataclass
class Engine:
    """Stands in for an engine that samples ids."""

    template: Template
    session: Session = field(init=False)

    def __post_init__(self) -> None:
        self.session = self.template.session("turnwise")

    async def generate(self, prompt: list[int]) -> AsyncIterator[str]:
        assert prompt[: len(self.session.ids)] == self.session.ids
        for text in ("Hello", ", sailor.", self.template.stops()[0]):
            await asyncio.sleep(0)
            yield text


async def stream_events(engine: Engine, question: str) -> tuple[list[Event], Message]:
    messages: list[ChatMessage] = [{"role": "user", "content": question}]
    prompt = engine.session.prompt(messages)
    parser = engine.template.parser(prompt, tokenizer="turnwise", strip="all")
    events: list[Event] = []
    async for event in parser.stream(engine.generate(prompt)):
        events.append(event)
    message = parser.close()
    engine.session.add_reply(parser.text, message)
    return events, message


async def stream_lines(engine: Engine, question: str) -> AsyncIterator[str]:
    prompt = engine.session.extend([{"role": "user", "content": question}], history="keep")
    stream = ChunkStream(engine.template.parser(engine.session.text), id="chatcmpl-1", model="demo")
    async for text in engine.generate(prompt):
        for chunk in stream.feed(text):
            yield f"data: {json.dumps(chunk)}\n\n"
    for chunk in stream.close():
        yield f"data: {json.dumps(chunk)} {chunk['choices'][0]['finish_reason']}\n\n"


async def main() -> None:
    engine = Engine(turnwise.load("chatml"))
    events, message = await stream_events(engine, "Hi")
    print("".join(event.text for event in events if event.kind == "text"), message.stop)
    try:
        async for line in stream_lines(engine, "Again?"):
            print(line.strip())
    except TurnwiseError as error:
        print(error, error.hint)


if __name__ == "__main__":
    asyncio.run(main())
