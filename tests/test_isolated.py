"""Templates in worker processes: the same results, and whatever a template does to its process, an answer in time."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import pytest

import corpus
import turnwise
from containment import memory_in_use
from turnwise.isolation.answers import Answer, read_answer
from turnwise.isolation.pool import WorkerPool
from turnwise.isolation.worker import pack

pytestmark = pytest.mark.once

CHAT = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "ok"}]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SECONDS = 0.5
MEGABYTES = 128
# What the asking process may have grown by when all answers are forgotten: 20 MB templates leave holes in its memory.
PARENT_MEGABYTES = 64
OBJECTS_MEGABYTES = 1  # of it, in Python's objects
GRACE = 120.0
"""Wall time for one answer on a machine that has much else to do; the limits themselves are processor time."""
SETUP = """
import ctypes, os, tempfile, time
import turnwise
from turnwise.template import Template

plain_render = Template.render

def misbehave(self, messages, *more, **arguments):
    word = messages[0]["content"] if messages else ""
    if word == "sleep": time.sleep(1000)
    while word == "spin": pass
    if word == "search": "a" * 10**8 in "b" * 10**9
    if word == "allocate": return [bytearray(10**6) for _ in range(10**6)]
    if word == "exit": os._exit(3)
    if word == "crash": ctypes.string_at(0)
    if word == "take over": return os.system
    if word == "fail": raise KeyError("oops")
    if word == "write": tempfile.TemporaryFile(buffering=0).write(b"x")
    if word == "print": print("noise" * 1000)
    return plain_render(self, messages, *more, **arguments)

Template.render = misbehave
"""
HARM = {
    "spin": "processor time",
    "allocate": "memory|processor time",
    "exit": "exit code 3",
    "crash": "SIGSEGV",
}


@pytest.fixture(scope="module", autouse=True)
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An installed package has bytecode, and this environment may forbid to write it: then a worker starts slowly."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path_factory.mktemp("bytecode")))
        yield


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    with turnwise.isolated(
        2, seconds=SECONDS, megabytes=MEGABYTES, patience=GRACE, setup=SETUP
    ) as started:
        yield started


def say(word: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": word}]


def children() -> set[int]:
    """The processes that this one has started, zombies included."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    found = set(map(int, path.read_text().split())) if path.exists() else set()
    for task in Path("/proc/self/task").iterdir():
        if (task / "children").exists():
            found |= set(map(int, (task / "children").read_text().split()))
    return found


def test_results_are_those_of_a_template(pool: WorkerPool) -> None:
    here, there = turnwise.compile(TEMPLATE), pool.compile(TEMPLATE)
    assert there.name == here.name
    assert there.render(CHAT).text == here.render(CHAT).text
    assert there.render(CHAT).pieces == here.render(CHAT).pieces
    assert there.stops() == here.stops()
    assert there.stops("turnwise").ids == here.stops("turnwise").ids
    assert there.markers("turnwise") == here.markers("turnwise")
    assert there.parse("yes<|im_end|>") == here.parse("yes<|im_end|>")
    encoded, expected = there.encode(CHAT, "turnwise"), here.encode(CHAT, "turnwise")
    assert encoded.input_ids == expected.input_ids and encoded.labels == expected.labels
    samples, wanted = there.examples(CHAT, "turnwise"), here.examples(CHAT, "turnwise")
    assert [sample.input_ids for sample in samples] == [sample.input_ids for sample in wanted]
    assert there.convert("jinja") == here.convert("jinja")


def test_text_that_was_marked_safe_comes_back(pool: WorkerPool) -> None:
    source = "{{ '<b>'|safe }}{{ messages[0].content|escape }}"
    there = pool.compile(source).render(CHAT)
    assert there.pieces == turnwise.compile(source).render(CHAT).pieces


def test_errors_are_those_of_a_template(pool: WorkerPool) -> None:
    for source in (
        "{{ messages[0].content.nothing.more }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ raise_exception('no') }}",
    ):
        with pytest.raises(turnwise.TemplateError) as here:
            turnwise.compile(source).render(CHAT)
        with pytest.raises(turnwise.TemplateError) as there:
            pool.compile(source).render(CHAT)
        assert type(there.value) is type(here.value) and str(there.value) == str(here.value)
    with pytest.raises(turnwise.TemplateSyntaxError):
        pool.compile("{% for %}")


def test_warnings_come_back(pool: WorkerPool) -> None:
    template = pool.compile("{{ bos_token + messages[0].content }}")
    with pytest.warns(turnwise.TurnwiseWarning, match="bos_token"):
        assert template.render(CHAT).text == "hello"


def test_a_template_is_loaded_with_limits(pool: WorkerPool) -> None:
    assert pool.load("chatml").stops() == turnwise.load("chatml").stops()
    limits = turnwise.Limits(steps=5, max_growth=0)
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        pool.compile(TEMPLATE, limits=limits).render(CHAT * 100)
    assert caught.value.budget == "steps"
    template = pool.compile(TEMPLATE)
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        template.with_limits(limits).render(CHAT * 100)
    assert caught.value.budget == "steps"
    assert template.render(CHAT * 100).text
    with pytest.raises(turnwise.MessageError, match=r"turnwise\.Limits"):
        template.with_limits(5)  # type: ignore[arg-type]


@pytest.mark.law(2)
@pytest.mark.parametrize("word", HARM)
def test_a_worker_is_killed_and_replaced(pool: WorkerPool, word: str) -> None:
    template = pool.compile(TEMPLATE)
    before = pool.pids
    start = time.monotonic()
    with pytest.raises(turnwise.TemplateLimitError, match=HARM[word]) as caught:
        template.render(say(word))
    assert caught.value.budget == "isolation"
    assert time.monotonic() - start < GRACE
    assert template.render(CHAT).text == turnwise.compile(TEMPLATE).render(CHAT).text
    assert len(pool.pids) == len(before) and pool.pids != before


def test_workers_that_died_while_idle_cost_no_call() -> None:
    with turnwise.isolated(2, setup=SETUP) as pool:
        template = pool.compile(TEMPLATE)
        pool.wait_until_ready()
        dead = pool.pids
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert template.render(CHAT).text == turnwise.compile(TEMPLATE).render(CHAT).text
        assert len(pool.pids) == len(dead) and not set(pool.pids) & set(dead)


def test_a_worker_that_sleeps_is_killed() -> None:
    with turnwise.isolated(1, patience=1.0, setup=SETUP) as pool:
        template = pool.compile(TEMPLATE)
        with pytest.raises(turnwise.TemplateLimitError, match="no answer after 1 s") as caught:
            template.render(say("sleep"))
        assert caught.value.budget == "isolation"


def test_a_search_in_c_is_ended(pool: WorkerPool) -> None:
    """No Python code runs meanwhile: a handler of a signal would wait for the end."""
    with pytest.raises(turnwise.TemplateLimitError) as caught:
        pool.compile(TEMPLATE).render(say("search"))
    assert caught.value.budget == "isolation"


def test_a_worker_cannot_answer_with_anything_else(pool: WorkerPool) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="no part of an answer"):
        pool.compile(TEMPLATE).render(say("take over"))


@pytest.mark.parametrize("word", ["fail", "write"])
def test_a_defect_is_an_error_of_ours(pool: WorkerPool, word: str) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="a worker failed"):
        pool.compile(TEMPLATE).render(say(word))


def test_noise_is_no_answer(pool: WorkerPool) -> None:
    assert "print" in pool.compile(TEMPLATE).render(say("print")).text


@pytest.mark.parametrize(
    "thing", [os.system, eval, turnwise.load, subprocess.Popen, turnwise.compile]
)
def test_answers_have_a_white_list(thing: Any) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="no part of an answer"):
        read_answer(pickle.dumps((thing, None, (), False, False)))


@pytest.mark.parametrize("data", [b"", b"\x80", b"x" * 100, pickle.dumps(CHAT)[:-3]])
def test_damaged_answers_are_errors(data: bytes) -> None:
    with pytest.raises(turnwise.TurnwiseError, match="cannot be read"):
        read_answer(data)


def test_threads_share_a_pool(pool: WorkerPool) -> None:
    template = pool.compile(TEMPLATE)
    words = [f"word {number}" for number in range(40)] + ["exit"] * 3

    def work(word: str) -> str:
        try:
            return template.render(say(word)).text
        except turnwise.TemplateLimitError as error:
            return error.budget

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, words))
    expected = turnwise.compile(TEMPLATE)
    assert found[:40] == [expected.render(say(word)).text for word in words[:40]]
    assert found[40:] == ["isolation"] * 3


@pytest.mark.parametrize(
    "wrong",
    [{"workers": 0}, {"seconds": -1}, {"megabytes": "much"}, {"seconds": True}, {"setup": 3}],
)
def test_arguments_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(turnwise.MessageError):
        turnwise.isolated(**wrong)


def test_a_setup_that_fails_is_named() -> None:
    with (
        turnwise.isolated(1, setup="import nothing_of_that_name") as pool,
        pytest.raises(turnwise.TurnwiseError, match="did not start: it ended with exit code 1"),
    ):
        pool.compile(TEMPLATE)


def test_processes_that_cannot_be_started_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise BlockingIOError("no more processes")

    with turnwise.isolated(1, setup=SETUP) as pool:
        template = pool.compile(TEMPLATE)
        with monkeypatch.context() as patch:
            patch.setattr(subprocess, "Popen", refuse)
            for _ in range(2):
                with pytest.raises(turnwise.TemplateLimitError):
                    template.render(say("exit"))
            with pytest.raises(turnwise.TurnwiseError, match="no more processes"):
                template.render(CHAT)
            with pytest.raises(turnwise.TurnwiseError, match="no more processes"):
                turnwise.isolated(1)
        assert template.render(CHAT).text


class Heavy:
    def __reduce__(self) -> NoReturn:
        raise MemoryError


def test_a_result_that_does_not_fit_the_memory_is_reported() -> None:
    answer = Answer(*read_answer(pack(Answer(Heavy(), None, ()))))
    assert answer.out_of_memory and answer.retires and answer.result is None


def test_what_cannot_be_sent_is_named(pool: WorkerPool) -> None:
    with pytest.raises(turnwise.MessageError, match="cannot be sent"):
        pool.compile(TEMPLATE).render(CHAT, now=lambda: None)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_nothing_is_left_behind() -> None:
    before = len(os.listdir("/proc/self/fd")), children()
    started = turnwise.isolated(1, seconds=SECONDS, setup=SETUP)
    template = started.compile(TEMPLATE)
    with pytest.raises(turnwise.TemplateLimitError):
        template.render(say("exit"))
    running = threading.Thread(
        target=lambda: pytest.raises(turnwise.TurnwiseError, template.render, say("sleep"))
    )
    running.start()
    time.sleep(0.2)
    started.close()
    running.join(GRACE)
    assert not running.is_alive()
    started.close()
    with pytest.raises(turnwise.TurnwiseError, match="closed"):
        template.render(CHAT)
    with pytest.raises(turnwise.TurnwiseError, match="closed"):
        started.compile(TEMPLATE)
    assert (len(os.listdir("/proc/self/fd")), children()) == before


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "import turnwise\n"
        "pool = turnwise.isolated(1)\n"
        f"print(pool.compile({TEMPLATE!r}).stops())\n",  # and never closed
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "('<|im_end|>',)\n" and not done.stderr


# Many hostile templates in a row


def hostile_templates() -> list[str]:
    """Those of the corpus; one of our own if there is no corpus."""
    texts = [row.text for row in corpus.hostile()] + [*more_hostile()]
    return texts or [
        "{% for i in range(99999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}"
    ]


def more_hostile() -> Iterator[str]:
    for row in corpus.lines("security/hostile_more.jsonl"):
        yield row["template"] if "template" in row else corpus.evaluate_text(row["template_gen"])


def survive(count: int) -> None:
    """Every template gets an answer within its limit; processes, descriptors and memory are as before.

    The templates come again and again with another number, and every tenth does real harm.
    """
    before = len(os.listdir("/proc/self/fd"))
    templates = hostile_templates()
    harm = ["spin", "exit", "crash", "allocate"]
    with turnwise.isolated(
        4, seconds=SECONDS, megabytes=MEGABYTES, patience=GRACE, setup=SETUP
    ) as pool:
        open_files = len(os.listdir("/proc/self/fd"))
        outcomes: dict[str, int] = {}
        unexpected: list[str] = []

        def work(number: int) -> str:
            # Made here, so that no reference is kept: Python stores a text that is sent once more, as UTF-8.
            text = f"{templates[number * 7 % len(templates)]}{{# {number} #}}"
            chat = say(harm[number // 10 % len(harm)]) if number % 10 == 0 else CHAT
            start = time.monotonic()
            try:
                pool.compile(TEMPLATE if number % 10 == 0 else text).render(chat)
                outcome = "rendered"
            except turnwise.TemplateLimitError as error:
                outcome = error.budget
            except turnwise.TurnwiseError as error:
                outcome = type(error).__name__
                if outcome == "TurnwiseError":  # of the pool itself
                    unexpected.append(f"{text[:200]}: {error}")
            assert time.monotonic() - start < GRACE, text[:200]
            return outcome

        with ThreadPoolExecutor(4) as threads, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            list(threads.map(work, range(20)))
            held = memory_in_use()
            tracemalloc.start()
            for outcome in threads.map(work, range(count)):
                outcomes[outcome] = outcomes.get(outcome, 0) + 1
        assert sum(outcomes.values()) == count
        assert outcomes["isolation"] >= count // 10, outcomes
        assert not unexpected
        assert len(pool.pids) == 5
        assert (memory_in_use() - held) / 1024 < PARENT_MEGABYTES
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert kept / 2**20 < OBJECTS_MEGABYTES
        assert len(os.listdir("/proc/self/fd")) == open_files
        assert pool.compile(TEMPLATE).render(CHAT).text
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_survives_hostile_templates() -> None:
    survive(20)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_survives_a_thousand_hostile_templates() -> None:
    survive(1000)
