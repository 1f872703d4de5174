"""Trains under transformers' Trainer: trained.py FOLDER ['rest of ']CASE:WINDOW... A rest continues what was saved."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)

import evenstep.torch as evenstep
from framework_case import (
    FEATURES,
    GLOBAL_BATCH,
    LABELS,
    SAMPLES,
    SEED,
    STEPS,
    Step,
    Witness,
    alone,
    optimizer,
)

LENGTH, WORDS, IGNORED = 6, 11, -100
TOKENS = torch.randint(0, WORDS, (SAMPLES, LENGTH), generator=torch.Generator().manual_seed(2))
TARGETS = TOKENS.masked_fill(torch.arange(LENGTH) >= 2 + torch.arange(SAMPLES)[:, None] % 5, IGNORED)


class Rows(nn.Module):
    """Returns the mean over rows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 5))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        logits = self.layers(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Unlabelled(Rows):
    """Has no labels by that name."""

    def forward(self, x: torch.Tensor, digit: torch.Tensor) -> dict[str, torch.Tensor]:
        return super().forward(x, digit)


class Words(nn.Module):
    """Returns the mean over the tokens of the batch, whatever the others have."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Embedding(WORDS, WORDS)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.inner(input_ids)
        return {"loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


class Lines(Words):
    """Returns the mean over rows of the means over their tokens."""

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        losses = nn.functional.cross_entropy(self.inner(input_ids).transpose(1, 2), labels, reduction="none")
        return {"loss": (losses.sum(1) / labels.ne(IGNORED).sum(1)).mean()}


def llama() -> nn.Module:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, **shape))
    model.loss_function = in_double  # its own is in single precision
    return model


def bert() -> nn.Module:
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return BertForSequenceClassification(BertConfig(vocab_size=WORDS, num_labels=5, **shape, **none))


def in_double(logits: Any, labels: torch.Tensor, num_items_in_batch: Any = None, **more: Any) -> torch.Tensor:
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if num_items_in_batch is None:
        return nn.functional.cross_entropy(logits, labels)
    return nn.functional.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch


def by_hand(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any) -> torch.Tensor:
    return in_double(outputs["logits"], labels, num_items_in_batch)


def counted(rows: torch.Tensor, first: int = 1) -> int:
    return int(TARGETS[rows, first:].ne(IGNORED).sum())


def summed(model: Any, rows: torch.Tensor) -> torch.Tensor:
    return in_double(model(TOKENS[rows]).logits, TARGETS[rows], 1)


def without_threes(samples: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    whole = default_data_collator(samples)
    return {name: values[whole["digit"] != 3] for name, values in whole.items()}


SPARSE = TARGETS.masked_fill(torch.arange(SAMPLES)[:, None] % 9 > 0, IGNORED)
ROWS = [{"x": x, "labels": y} for x, y in zip(FEATURES, LABELS, strict=True)]
DIGITS = [{"x": row["x"], "digit": row["labels"]} for row in ROWS]
TEXTS = [{"input_ids": x, "labels": y} for x, y in zip(TOKENS, TARGETS, strict=True)]


def kept(rows: torch.Tensor) -> torch.Tensor:
    return rows[LABELS[rows] != 3]


# Model, data, and what one process does: a loss of a batch's indices, and more of `alone`.
CASES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "rows": (Rows, ROWS, {"loss_of": lambda m, rows: m(FEATURES[rows], LABELS[rows])["loss"]}),
    "no labels": (Unlabelled, DIGITS, {"loss_of": lambda m, rows: m(FEATURES[rows], LABELS[rows])["loss"]}),
    "rows dropped": (
        Unlabelled,
        DIGITS,
        {"loss_of": lambda m, rows: m(FEATURES[kept(rows)], LABELS[kept(rows)])["loss"]},
    ),
    "words": (Words, TEXTS, {"loss_of": lambda m, rows: m(TOKENS[rows], TARGETS[rows])["loss"]}),
    "lines": (Lines, TEXTS, {"loss_of": lambda m, rows: m(TOKENS[rows], TARGETS[rows])["loss"]}),
    "few words": (
        Words,
        [{"input_ids": x, "labels": y} for x, y in zip(TOKENS, SPARSE, strict=True)],
        {"loss_of": lambda m, rows: m(TOKENS[rows], SPARSE[rows])["loss"]},
    ),
    "llama": (llama, TEXTS, {"loss_of": summed, "terms_of": counted}),
    "llama, each by its own tokens": (llama, TEXTS, {"loss_of": summed, "terms_of": counted}),
    "llama, loss by hand": (llama, TEXTS, {"loss_of": summed, "terms_of": counted}),
    "bert": (
        bert,
        [{"input_ids": x, "labels": y} for x, y in zip(TOKENS, LABELS, strict=True)],
        {"loss_of": lambda m, rows: m(TOKENS[rows], labels=LABELS[rows]).loss},
    ),
    # A last batch of one sample for two ranks.
    "rows, 1 left": (Rows, ROWS[:97], {"loss_of": lambda m, rows: m(FEATURES[rows], LABELS[rows])["loss"]}),
    "llama, 1 left": (llama, TEXTS[:97], {"loss_of": summed, "terms_of": counted}),
}
SETTINGS: dict[str, dict[str, Any]] = {
    "llama, each by its own tokens": {"average_tokens_across_devices": False},
    "llama, loss by hand": {"compute_loss_func": by_hand},
    "rows dropped": {"data_collator": without_threes},
}
COUNTS = {"lines": lambda batch: len(batch["labels"])}


class Watch(TrainerCallback):
    def __init__(self, witness: Witness) -> None:
        self.witness = witness

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self.witness.stepped(model)


def build(case: str) -> nn.Module:
    torch.manual_seed(0)
    return CASES[case][0]().double()


def expected(trainer: Trainer, case: str, window: int, epochs: int) -> list[Step]:
    more = {"short": STEPS % window, "samples": len(CASES[case][1]), **CASES[case][2]}
    if case == "bert" and trainer.model_accepts_loss_kwargs:
        # Trainer multiplies by the ranks, and divides by no window, what it takes for a sum.
        more |= {"scale": 2 * window, "short": window}
    if "terms_of" in more and not hasattr(trainer, "_loss_shifts_labels"):  # older ones count the first label too
        more["terms_of"] = partial(counted, first=0)
    return alone(build(case), window=window, epochs=epochs, **more)


def train(case: str, window: int, folder: Path, *, workers: int, epochs: int, resume: bool) -> None:
    model = build(case)
    sgd = optimizer(model)
    schedule = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: 1.0)
    updates = -(-STEPS // window)
    stop = updates + 2  # in the middle of the second epoch
    settings = SETTINGS.get(case, {})
    more = {name: value for name, value in settings.items() if name in ("compute_loss_func", "data_collator")}
    args = TrainingArguments(
        str(folder / f"{case} {window}"),
        per_device_train_batch_size=GLOBAL_BATCH // 2,
        gradient_accumulation_steps=window,
        num_train_epochs=epochs,
        dataloader_num_workers=workers,
        data_seed=SEED,
        logging_steps=1,
        max_grad_norm=0,
        save_strategy="steps",
        save_steps=stop,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        **{name: value for name, value in settings.items() if name not in more},
    )
    more = {"data_collator": default_data_collator, "optimizers": (sgd, schedule), **more}
    trainer = Trainer(model, args, train_dataset=CASES[case][1], **more)
    evenstep.hf.balance(trainer, count=COUNTS.get(case))
    steps = expected(trainer, case, window, epochs)
    witness = Witness(steps, done=stop if resume else 0)
    model.register_forward_pre_hook(
        lambda m, args, kwargs: witness.saw(len(next(iter([*args, *kwargs.values()])))) if m.training else None,
        with_kwargs=True,
    )
    trainer.add_callback(Watch(witness))
    trainer.train(resume_from_checkpoint=str(folder / f"{case} {window}" / f"checkpoint-{stop}") if resume else None)
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    # Older releases leave out the last windows that are not full.
    off = max(abs(mine - step.loss) for mine, step in zip(losses, steps[: trainer.state.max_steps], strict=True))
    turns = trainer.lr_scheduler.last_epoch
    name = f"{'rest of ' if resume else ''}{case}, window {window}"
    witness.tell(name, losses_off=off, turns=turns, length=len(trainer.get_train_dataloader()))


def main() -> None:
    dist.init_process_group("gloo")
    for word in sys.argv[2:]:
        case, _, window = word.removeprefix("rest of ").rpartition(":")
        resume = word.startswith("rest of ")
        workers = 2 if (case, window) == ("rows", "1") else 0
        train(case, int(window), Path(sys.argv[1]), workers=workers, epochs=2 + resume, resume=resume)
    dist.destroy_process_group()


main()
