"""What a run asks, for people: the question, what an answer must be, and how to give it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from typing import Any

from outlive.cli.output import print_line
from outlive.model.wanted import example, wanted
from outlive.posting import Question


def print_questions(run_id: str, questions: Sequence[Question]) -> None:
    """Each with the command that answers it."""
    for question in questions:
        print_line()
        print_line(f"asks: {question.text}")
        print_line(f"  question   {question.id}")
        print_line(f"  wants      {wanted(question.schema)}")
        if question.by is not None:
            print_line(f"  of         {question.by}")
        if question.until is not None:
            print_line(f"  until      {question.until.isoformat(timespec='seconds')}")
        print_line(f"  answer it  {answer_command(run_id, question, len(questions))}")


def question_data(question: Question) -> dict[str, Any]:
    """The same for programs."""
    return dataclasses.asdict(question)


def answer_command(run_id: str, question: Question, count: int) -> str:
    """What to type."""
    words = ["outlive", "answer", shlex.quote(run_id), example(question.schema)]
    if count > 1:
        words += ["--question", shlex.quote(question.id)]
    return " ".join(words)
