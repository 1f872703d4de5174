"""When the compiler was at work: such a step tells nothing of how fast a rank computes."""

from typing import Any

import torch


class Compiles:
    """Counts the compilations of this process; always none where this version of torch does not tell."""

    def __init__(self) -> None:
        """Count from now on."""
        self._begun = 0
        self._seen = 0
        self._callbacks: list[Any] = []
        try:
            self._callbacks = torch._dynamo.callback.callback_handler.start_callbacks
        except AttributeError:  # not in this version
            return
        self._listen()

    def any(self) -> bool:
        """Say whether one began since this was last asked."""
        self._listen()
        before, self._seen = self._seen, self._begun
        return before != self._begun

    def _listen(self) -> None:
        if self._count not in self._callbacks:  # torch._dynamo.reset() forgets us
            self._callbacks.append(self._count)

    def _count(self, *_: Any) -> None:
        self._begun += 1
