"""Trainings on tutti give gloo's numbers, within rounding; under torchrun with gloo replaced and nothing changed, too."""

import os
import pathlib
import unittest

import ranks
import torch
import torch._dynamo  # noqa: F401: these, so that forked ranks need not load them
import torch.distributed.checkpoint  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.optim  # noqa: F401
import torch.distributed.pipelining  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401
import training

FOLDER = pathlib.Path(__file__).parent
LONG = os.environ.get("TUTTI_TORCH_TESTS") == "all"
LONG_SAYS = "takes long: TUTTI_TORCH_TESTS=all runs it"
SHORT = (training.ddp, training.fsdp2, training.dtensor, training.functional)


class Training(unittest.TestCase):
    def compare(self, part, count: int) -> None:
        ours = ranks.run(count, part, backend="tutti")
        theirs = ranks.run(count, part, backend="gloo")
        for rank, (mine, reference) in enumerate(zip(ours, theirs)):
            torch.testing.assert_close(torch.tensor(mine), torch.tensor(reference), rtol=2e-3 if "bf16" in part.__name__
                                       or part.__name__ == "fsdp2" else 1e-4, atol=1e-5, msg=lambda m: f"rank {rank}: {m}")

    def torchrun(self, *command: str, **environment: str) -> str:
        done = ranks.torchrun(*command, timeout=120, **environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_power_sgd_gives_all_ranks_one_model(self) -> None:
        self.assertEqual(len({number for numbers in ranks.run(2, training.power_sgd) for number in numbers}), 1)

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_torchrun_finds_the_backend_by_its_name(self) -> None:
        self.assertIn("ddp ", self.torchrun(str(FOLDER / "training.py"), "ddp"))

    @unittest.skipUnless(LONG, LONG_SAYS)
    def test_torchrun_with_gloo_replaced(self) -> None:
        program = [str(FOLDER / "training.py"), "ddp"]
        expected = self.torchrun(*program)
        gloo = {"TUTTI_TEST_BACKEND": "gloo"}
        self.assertEqual(expected, self.torchrun("-m", "tutti.torch", "--replace-gloo", *program, **gloo))
        self.assertEqual(expected, self.torchrun(*program, TUTTI_REPLACE_GLOO="1", **gloo))


for part in training.ALL:
    for count in (2, 4):
        @unittest.skipUnless(LONG or (count == 2 and part in SHORT), LONG_SAYS)
        def test(self: Training, part=part, count=count) -> None:
            self.compare(part, count)

        setattr(Training, f"test_{part.__name__}_of_{count}_ranks", test)

if __name__ == "__main__":
    unittest.main()
