"""The options that the examples share, and data that is not there. Argument: an example."""
import subprocess
import sys
import tempfile

REFUSED = (
    ("--num-samples", "99999999999999999999"), ("--num-samples", "-2"), ("--num-samples", "1.5"), ("--num-samples", "7x"),
    ("--max-iterations", "0"), ("--max-iterations", "-1"), ("--seed", "-1"), ("--seed", "18446744073709551616"),
    ("--cpus-per-trial", "-1"), ("--cpus-per-trial", "nan"), ("--cpus-per-trial", "1e400"), ("--max-concurrent", "-1"),
    ("--max-failures", "-2"), ("--checkpoint-freq", "-2"), ("--verbose", "4"), ("--resume", "no"),
    ("--name", ""), ("--local-dir", ""), ("--data-dir", ""), ("--nmae", "x"))


def run(*arguments):
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


for option, value in REFUSED:
    code, out, err = run(option, value)
    assert code == 2 and option in err and not out, (option, value, code, err)
code, _, err = run("extra")
assert code == 2 and "extra" in err, (code, err)
code, out, _ = run("--help")
assert code == 0 and "[yes|automatic|errored_only|restart_errored]" in out, out
with tempfile.TemporaryDirectory() as folder:
    code, out, err = run("--data-dir", "/nowhere", "--local-dir", folder)
    assert code == 1 and "error" in err and "Fashion-MNIST is not at /nowhere" in err and "ERROR" not in out, (code, out, err)
