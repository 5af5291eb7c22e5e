"""What tutti promises: the table of targets, whose figures targets.py measures."""
import statistics


class Target:
    """One line of the table. `cases` are the figures of each turn, by what was measured."""

    def __init__(self, group, text, sign, limit, unit=""):
        self.group, self.text, self.sign, self.limit, self.unit = group, text, sign, limit, unit
        self.cases = {}

    def note(self, case, value):
        self.cases.setdefault(case, []).append(value)

    def medians(self):
        return {case: statistics.median(values) for case, values in self.cases.items()}

    def good(self, value):
        return value <= self.limit if self.sign == "<=" else value >= self.limit

    def show(self, value):
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        return f"{value:.2f}{' ' + self.unit if self.unit else ''}"

    def worst(self):
        medians = self.medians()
        return (max if self.sign == "<=" else min)(medians, key=medians.get)


def targets():
    """The table, by the names that the measurements use."""
    return {
        "small": Target("shm", "8 B all_reduce, barrier: time to half the best's, or 2 lines if more", "<=", 1.0),
        "small others": Target("shm", "8 B broadcast, all_gather, all_to_all, reduce_scatter: time to the best's", "<=", 0.8),
        "small rooted": Target("shm", "8 B reduce, gather, scatter: time to the best's", "<=", 1.0),
        "line": Target("shm", "8 B all_reduce: time to a cache line's way between cores", "<=", 3.0),
        "plan": Target("plan", "8 B all_reduce, planned: time over a cache line's way", "<=", 60, "ns"),
        "medium": Target("shm", "4 KB to 1 MB, every collective: time to the best's", "<=", 0.9),
        "all_reduce": Target("large", "all_reduce, 1 to 256 MB: speed over Open MPI's", ">=", 2.0),
        "symmetric": Target("symmetric", "all_reduce, 1 to 256 MB, symmetric buffers: speed over Open MPI's", ">=", 3.0),
        "traffic": Target("symmetric", "the same: part of what the memory traffic allows", ">=", 0.8, "%"),
        "large": Target("others", "the other collectives, 1 to 64 MB: speed over the best's", ">=", 1.3),
        "balanced": Target("blocks", "all_to_all_v, blocks nearly alike, 2 and 8 ranks: speed over the best MPI's", ">=", 1.2),
        "sparse": Target("blocks", "all_to_all_v, 3 blocks of 4 KB a rank, 8 ranks: speed over the best MPI's", ">=", 2.0),
        "skewed": Target("blocks", "all_to_all_v, 90 % to one rank, 2 and 8 ranks: speed over the best MPI's", ">=", 1.3),
        "tcp balanced": Target("blocks_tcp", "the same over TCP: blocks nearly alike", ">=", 1.2),
        "tcp sparse": Target("blocks_tcp", "the same over TCP: 3 blocks of 4 KB a rank", ">=", 2.0),
        "tcp skewed": Target("blocks_tcp", "the same over TCP: 90 % to one rank", ">=", 1.3),
        "tcp short": Target("blocks_tcp", "TCP all_to_all_v, 8 ranks, blocks to 256 B: speed over our own pairwise", ">=", 2.0),
        "types": Target("types", "bfloat16, float16 all_reduce, 1 to 64 MB: time to float32's", "<=", 0.6),
        "sendrecv": Target("shm", "send and receive, 8 B and 1 MB: time to the best MPI's", "<=", 1.0),
        "crowd": Target("crowd", "8 B, 64 KB all_reduce, more ranks than cores: time to Open MPI's", "<=", 0.7),
        "beside": Target("crowd", "8 B all_reduce, beside 4 and 8 processes that compute: mean time to gloo's", "<=", 1.0),
        "wait": Target("progress", "a wait of 100 ms: part of a core", "<=", 0.02, "%"),
        "tcp": Target("tcp", "TCP all_reduce, 16 to 256 MB: part of iperf3's two-way rate", ">=", 0.8, "%"),
        "tcp gloo": Target("tcp", "the same: speed over gloo's, both without checksums", ">=", 3.0),
        "tcp checked": Target("tcp", "the same with checksums, which gloo does not have: speed over gloo's", ">=", 2.0),
        "tls": Target("tcp", "TCP all_reduce by TLS, 16 to 256 MB: part of the speed without", ">=", 0.6, "%"),
        "tls small": Target("tcp", "TCP 8 B all_reduce by TLS: time to that without", "<=", 1.5),
        "checksums": Target("tcp", "TCP all_reduce, 64 MB, 1 Gbit/s: time with checksums to that without", "<=", 1.03),
        "tcp small": Target("tcp", "TCP 8 B all_reduce: time to a bare blocking exchange", "<=", 1.3),
        "tcp small gloo": Target("tcp", "TCP 8 B all_reduce: time to gloo's", "<=", 0.4),
        "hosts": Target("hosts", "2 hosts of 2 ranks, all_reduce: speed over Open MPI's over TCP", ">=", 1.5),
        "redis": Target("store", "store, 64 B: throughput over Redis's; of a wait woken, speed", ">=", 1.0),
        "torch get": Target("store", "store get: time to PyTorch's", "<=", 0.5),
        "torch set": Target("store", "store set, add: time to PyTorch's", "<=", 1.0),
        "torch many": Target("store", "store, 8 and 50 clients: throughput over PyTorch's", ">=", 1.5),
        "torch wake": Target("store", "store, a wait woken by a set: time to PyTorch's", "<=", 0.5),
        "start": Target("start", "32 processes to the end of their first barrier: speed over gloo's", ">=", 10.0),
        "start tls": Target("start", "the same of two hosts, by TLS", ">=", 1.5),
        "cpu": Target("shm", "CPU time a byte, 1 to 64 MB: to the fastest peer's", "<=", 1.0),
        "overlap": Target("progress", "all_reduce beside a computation: time to one after the other", "<=", 1.1),
        "left": Target("progress", "the same, TUTTI_PROGRESS_NICE=-5: part of it that is waited for at its end", "<=", 0.05, "%"),
        "quantise": Target("quantized", "quantising float16 to int8: elements a second over memcpy's", ">=", 0.25),
        "int8": Target("quantized", "1 Gbit/s, 16 to 64 MB, int8 on both legs: time to float16's all_reduce", "<=", 0.57),
        "one leg": Target("quantized", "the same, int8 on the first leg", "<=", 0.80),
        "int4": Target("quantized", "the same, int4 on both legs", "<=", 0.33),
        "int8 bytes": Target("quantized", "the same: bytes sent with int8 to those with float16", "<=", 0.52),
        "int4 bytes": Target("quantized", "the same: with int4", "<=", 0.28),
        "graph": Target("graph", "50 small all_reduces compiled by PyTorch with our passes: time to eager", "<=", 0.15),
        "graph plain": Target("graph", "the same, not put together: time to eager", "<=", 1.0),
        "graph layers": Target("graph", "two layers with an all_reduce each, one graph: time to eager", "<=", 1.0),
        "graph gloo": Target("graph", "the same: time to eager on gloo", "<=", 0.6),
        "replayed": Target("replay", "50 small all_reduces, replayed with buckets: time to the plain calls", "<=", 0.10),
        "dependent": Target("replay", "the same, each of the one before: time to the plain calls", "<=", 0.80),
        "empty": Target("replay", "what a compute step adds to a replay", "<=", 30, "ns"),
        "proof": Target("replay", "10,000 nodes of four ranks, proved", "<=", 2, "s"),
        "peak": Target("replay", "memory of temporaries: to the bytes alive at once", "<=", 1.05),
        "layers": Target("layers", "16 layers, each beside an all_reduce as long: time to the longer of both", "<=", 1.15),
        "split": Target("layers", "one layer and its all_reduce in chunks: time to the longer of both", "<=", 1.25),
        "nccl call": Target("nccl", "all_reduce on GPUs: the plug-in's own time, over NCCL's call", "<=", 300, "ns"),
        "nccl load": Target("nccl", "the backend nccl: time to load it with its library", "<=", 50, "ms"),
        "regret": Target("regret", "the choice: time to the best algorithm's", "<=", 1.1),
    }
