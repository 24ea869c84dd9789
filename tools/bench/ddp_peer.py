"""ddp_peer.py MODEL BATCH STEPS: prints the median seconds of a step of two processes with
DistributedDataParallel over Gloo, on the models of ddp_bench.cpp."""
import os
import statistics
import sys
import tempfile
import time


def model_of(name, torch):
    nn = torch.nn
    if name == "conv":
        return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
                             nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048),
                         nn.ReLU(), nn.Linear(2048, 10))


def rank_main(rank, store, name, batch, steps):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(model_of(name, torch))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = torch.nn.CrossEntropyLoss()
    shape = (batch, 1, 28, 28) if name == "conv" else (batch, 1024)
    batches = [(torch.randn(shape), torch.randint(10, (batch,))) for _ in range(8)]
    times = []
    for i in range(steps + 3):
        dist.barrier()
        begun = time.perf_counter()
        optimizer.zero_grad()
        loss = criterion(model(batches[i % 8][0]), batches[i % 8][1])
        loss.backward()
        optimizer.step()
        loss.item()
        if i >= 3:
            times.append(time.perf_counter() - begun)
    slowest = torch.tensor([statistics.median(times)])
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if rank == 0:
        print(slowest.item(), flush=True)


def main():
    try:
        import torch.multiprocessing as mp
    except ImportError:
        sys.exit(77)
    name, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(rank_main, args=(os.path.join(folder, "store"), name, batch, steps), nprocs=2)


if __name__ == "__main__":
    main()
