"""Text classification by transformers' Trainer. The line that Evenstep asks for is marked; docs/transformers.md has it.

torchrun --nproc-per-node=2 --rdzv-backend=evenstep examples/torchrun/train_trainer.py
"""

import argparse

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, default_data_collator

import evenstep.torch as evenstep
from texts import LENGTH, MODULES, Lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="build/trainer", help="folder of checkpoints")
    parser.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    args = parser.parse_args()

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(vocab_size=256, max_position_embeddings=LENGTH, num_labels=len(MODULES), **shape)
    model = BertForSequenceClassification(config)
    model.accepts_loss_kwargs = False  # it returns a mean; Trainer would multiply it by the number of ranks
    trainer = Trainer(
        model,
        TrainingArguments(
            args.out,
            per_device_train_batch_size=32,
            gradient_accumulation_steps=2,
            num_train_epochs=args.epochs,
            learning_rate=2e-3,
            logging_steps=20,
            save_steps=50,
            use_cpu=not torch.cuda.is_available(),
            disable_tqdm=True,
            report_to=[],
        ),
        train_dataset=Lines(),
        data_collator=default_data_collator,
    )
    evenstep.hf.balance(trainer)  # 1
    trainer.train(resume_from_checkpoint=args.resume)


if __name__ == "__main__":
    main()
