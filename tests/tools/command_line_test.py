"""How programs end when they are misused, or can't print. Arguments: their folder, the folder of golden files."""
import os
import pathlib
import subprocess
import sys
import tempfile

programs, golden = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
LOST = "what this program printed could not all be written"


def run(*command, out=subprocess.PIPE):
    with tempfile.TemporaryDirectory() as results:
        done = subprocess.run([programs / command[0], *map(str, command[1:])], stdout=out, stderr=subprocess.PIPE, text=True,
                              timeout=30, env={**os.environ, "TROUPE_RESULT_DIR": results}, check=False)
    return done.returncode, done.stderr


# A full disk and a closed pipe: the run goes on to its end, and the program says so.
with open("/dev/full", "w", encoding="utf-8") as full:
    for command in (("quickstart",), ("ckpt", "list", golden / "checkpoint_v1"), ("ckpt", "--help"), ("node", "doctor"),
                    ("tune_replay", "--help")):
        code, err = run(*command, out=full)
        assert code == 1 and err.endswith(f"{LOST}: No space left on device\n"), (command, code, err)
reader, writer = os.pipe()
os.close(reader)
code, err = run("quickstart", out=writer)
assert code == 1 and err.endswith(f"{LOST}: Broken pipe\n"), (code, err)
code, err = run("quickstart")
assert code == 0 and err == "", (code, err)

for command in (("ckpt",), ("ckpt", "list"), ("ckpt", "dance"), ("tune_replay",), ("tune_replay", "--chek", "x"),
                ("quickstart", "--troupe-cpus", "nan"), ("quickstart", "--troupe-cpus", "-1"),
                ("quickstart", "--troupe-gpus", "1.5"), ("quickstart", "--troupe-gpus", "99999999999999999999")):
    assert run(*command)[0] == 2, command
for command in (("ckpt", "--help"), ("ckpt", "verify", "--help"), ("tune_replay", "--help")):
    assert run(*command)[0] == 0, command

with tempfile.TemporaryDirectory() as folder:
    fifo = pathlib.Path(folder) / "fifo"
    os.mkfifo(fifo)
    code, err = run("tune_replay", fifo)
    assert code == 3 and "is not a regular file" in err, err
