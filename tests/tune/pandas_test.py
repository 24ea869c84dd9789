"""Reads with pandas what `result_files_writer` (argv[1]) wrote. Exit 77: pandas is not installed."""
import math
import subprocess
import sys
import tempfile

try:
    import pandas
except ImportError:
    print("skipped: python3-pandas is not installed")
    sys.exit(77)

NOTE = 'a,"b"\nc'

with tempfile.TemporaryDirectory() as folder:
    subprocess.run([sys.argv[1], folder], check=True)

    rows = pandas.read_json(folder + "/result.json", lines=True)
    assert len(rows) == 3, rows
    assert rows["loss"][0] == 0.1 + 0.2, rows["loss"]
    assert rows["loss"][1:].isna().all(), rows["loss"]
    assert rows["nan_keys"][1] == {"loss": "nan"} and rows["nan_keys"][2] == {"loss": "-inf"}
    assert rows["note"][0] == NOTE and rows["note"][1] == "=cmd()", rows["note"]
    assert rows["config"][0] == {"augment": {"flip": True}, "lr": 0.1}, rows["config"]
    assert rows["late"][2] == {"x": 4}, rows["late"]

    table = pandas.read_csv(folder + "/progress.csv", float_precision="round_trip")
    assert list(table.columns) == ["loss", "note", "trial_id", "late/x"], table.columns
    assert len(table) == 3, table
    assert table["loss"][0] == 0.1 + 0.2 and math.isnan(table["loss"][1]), table["loss"]
    assert table["loss"][2] == -math.inf, table["loss"]
    assert table["note"][0] == NOTE and table["note"][1] == "=cmd()", table["note"]
    assert table["late/x"].isna()[:2].all() and table["late/x"][2] == 4, table["late/x"]
    assert (table["trial_id"] == "a00e12_00000").all(), table["trial_id"]
