"""A parser of arguments that says what was probably meant."""

from __future__ import annotations

import argparse
from typing import Any

from mini_dnn.errors import meant, nearest


class Parser(argparse.ArgumentParser):
    """argparse's, with a suggestion for a mistyped verb, option, or value of an option."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += meant(str(value), action.choices or ())
            raise

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but arguments that nobody knows are an error of the verb that they follow."""
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [word for word in rest if word.startswith("-")]
            known = {option.lstrip("-"): option for option in self._option_string_actions}
            near = nearest(options[0].partition("=")[0].lstrip("-"), known) if options else ""
            hint = f" (did you mean '{known[near]}'?)" if near else ""
            self.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
        return found, rest
