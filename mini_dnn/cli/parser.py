"""An argument parser that suggests what was probably meant."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from mini_dnn.errors import meant, nearest
from mini_dnn.paths import program

NUMBERS = {int: "an integer", float: "a number"}


class Parser(argparse.ArgumentParser):
    """An argparse parser with suggestions for a mistyped verb, option, or value of an option.

    Errors are one line long, because a list of the verb's flags would hide them.
    """

    def error(self, message: str) -> NoReturn:
        """Report what was wrong, and where the flags are explained."""
        verb = self.prog.split()[1:]
        self.exit(2, f"error: {message}. '{program(*verb, '--help')}' explains the arguments\n")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if not (arg_string or action.nargs == argparse.PARSER or "" in (action.default, action.const)):
            raise argparse.ArgumentError(action, "the value is empty; a shell variable may not be set")
        try:
            return super()._get_value(action, arg_string)
        except argparse.ArgumentError as error:
            if action.type in NUMBERS:
                error.message = f"'{arg_string}' is not {NUMBERS[action.type]}"
            raise

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += meant(str(value), action.choices or ())
            raise

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, but treat unknown arguments as an error of the verb that they follow."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [word for word in rest if word.startswith("-")]
            known = {option.lstrip("-"): option for option in self._option_string_actions}
            near = nearest(options[0].partition("=")[0].lstrip("-"), known) if options else ""
            hint = f" (did you mean '{known[near]}'?)" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return found, rest
