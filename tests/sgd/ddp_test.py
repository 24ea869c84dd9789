"""Trains small models with PyTorch's DistributedDataParallel over Gloo, and has ours compared with them.

ddp_test.py PROGRAM        runs the test cases `ddp: …` of PROGRAM (sgd_tests) on what was trained here just now
ddp_test.py --write FILE   records it, for machines without PyTorch (golden/ddp-reference.json)

Exit 77: PyTorch is not installed. Parameters and batches come from a formula that internal/ddp_test.cpp has too.
"""
import contextlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile

try:
    import torch
    import torch.distributed
except ImportError:
    print("skipped: python3-torch is not installed")
    sys.exit(77)

STEPS = 12
SCENARIOS = {
    "equal batches": {"sizes": [4, 4]},
    "Adam": {"sizes": [4, 4], "adam": True},
    "unequal batches": {"sizes": [5, 3]},
    "accumulation": {"sizes": [4, 4], "passes": 2},
    "unused parameters": {"sizes": [4, 4], "unused": True},
}


def numbers(start, *shape):
    """Multiples of 1/1024 from -1 on, below 1: the same in any precision."""
    count = torch.Size(shape).numel()
    drawn = []
    for i in range(count):
        x = (i * 2654435761 + start * 40503) % 2**32
        x = ((x ^ (x >> 16)) * 0x45D9F3B) % 2**32
        drawn.append(((x ^ (x >> 16)) % 2048) / 1024 - 1)
    return torch.tensor(drawn).reshape(shape)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.last = torch.nn.Linear(8, 2)
        self.extra = torch.nn.Linear(6, 2)

    def forward(self, x, with_extra):
        out = self.last(torch.tanh(self.norm(self.first(x))))
        return out + self.extra(x) if with_extra else out


def train(rank, scenario):
    net = Net()
    with torch.no_grad():
        for i, parameter in enumerate(net.parameters()):
            parameter.copy_(numbers(i + 1, *parameter.shape) / 2)
    unused = scenario.get("unused", False)
    ddp = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=unused)
    if scenario.get("adam"):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    passes = scenario.get("passes", 1)
    size = scenario["sizes"][rank]
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        for i in range(passes):
            batch = 1000 + 4 * (step * passes + i) + 2 * rank
            with_extra = not unused or (rank == 1 and step % 2 == 0)
            with ddp.no_sync() if i + 1 < passes else contextlib.nullcontext():
                output = ddp(numbers(batch, size, 6), with_extra)
                loss = torch.nn.functional.mse_loss(output, numbers(batch + 1, size, 2))
                (loss / passes).backward()
            losses.append(loss.item())
        optimizer.step()
    state = list(net.parameters()) + [net.norm.running_mean, net.norm.running_var]
    return {"losses": losses, "state": torch.cat([t.detach().flatten() for t in state]).tolist()}


def run_rank(rank, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    trained = {name: train(rank, scenario) for name, scenario in SCENARIOS.items()}
    torch.distributed.barrier()
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(trained, file)


def reference():
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ranks = [spawn.Process(target=run_rank, args=(rank, folder)) for rank in range(2)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(90)
            if process.exitcode != 0:
                sys.exit(f"a rank of DistributedDataParallel ended with {process.exitcode}")
        return [json.load(open(f"{folder}/{rank}.json")) for rank in range(2)]


def shorter(value):
    """Nine digits hold a float."""
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, list):
        return [shorter(v) for v in value]
    return {k: shorter(v) for k, v in value.items()} if isinstance(value, dict) else value


def main():
    if sys.argv[1] == "--write":
        with open(sys.argv[2], "w") as file:
            json.dump(shorter(reference()), file)
            file.write("\n")
        return
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(reference(), file)
        file.flush()
        environment = dict(os.environ, TROUPE_DDP_REFERENCE=file.name)
        sys.exit(subprocess.run([sys.argv[1], "-tc=ddp:*"], env=environment).returncode)


if __name__ == "__main__":
    main()
