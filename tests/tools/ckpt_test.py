"""ckpt: exit codes and messages. Arguments: the program, the folder of golden files."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ckpt, golden = sys.argv[1], pathlib.Path(sys.argv[2]) / "checkpoint_v1"


def run(*arguments):
    done = subprocess.run([ckpt, *map(str, arguments)], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


code, out, _ = run("list", golden)
assert code == 0 and "iteration 3" in out and "net/weight" in out and "[2, 3]" in out, out
code, out, _ = run("list", "--json", golden / "checkpoint")
names = [blob["name"] for blob in json.loads(out)[0]["blobs"]]
assert code == 0 and names == ["loss", "net/weight", "note", "steps"], out
code, out, _ = run("verify", golden)
assert code == 0 and "sound (4 blobs)" in out, out

with tempfile.TemporaryDirectory() as folder:
    trial = pathlib.Path(folder)
    shutil.copytree(golden, trial / "good")
    shutil.copytree(golden, trial / "bad")
    damaged = bytearray((golden / "checkpoint").read_bytes())
    damaged[0x80] ^= 1
    (trial / "bad" / "checkpoint").write_bytes(damaged)
    code, out, _ = run("verify", trial)
    assert code == 1 and "bad: DAMAGED" in out and "'note': checksum differs" in out, out
    assert "good: sound" in out, out
    code, out, _ = run("verify", "--json", trial)
    assert code == 1 and [one["ok"] for one in json.loads(out)] == [False, True], out
    (trial / "empty").mkdir()
    code, _, err = run("list", trial / "empty")
    assert code == 2 and "no checkpoint in this folder" in err, err

    (trial / "garbage").write_bytes(b"garbage")
    os.mkfifo(trial / "fifo")
    for path, told in ((trial / "garbage", "a folder with a file 'checkpoint' in it"), (trial / "gone", "there is nothing"),
                       (trial / "fifo", "a folder with a file 'checkpoint' in it")):
        code, _, err = run("verify", path)
        assert code == 2 and str(path) in err and told in err, err

assert run("list")[0] == 2
assert run("frobnicate")[0] == 2
