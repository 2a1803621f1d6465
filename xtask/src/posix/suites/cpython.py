"""CPython's own tests of files: cpython.py FOLDER SCRATCH. Prints a line for each test: its name, and ok, skipped or failed."""

import subprocess
import sys
import xml.etree.ElementTree as xml

SETS = ["test_os", "test_posix", "test_shutil", "test_fcntl", "test_mmap", "test_largefile", "test_pathlib", "test_tempfile"]

# What takes ten minutes on a mount: thousands of steps each look up a path of 30 directories; copies of files of 2.5 GB.
SLOW = ["test_walk_many_open_files", "test_glob_many_open_files", "*.TestCopyfile.test_it", "*.TestSocketSendfile.test_it"]

folder, scratch = sys.argv[1:3]
for tests in SETS:
    report = f"{scratch}/{tests}.xml"
    command = [sys.executable, "-m", "test", "--tempdir", folder, "--timeout", "900"]
    command += [word for slow in SLOW for word in ("--ignore", slow)]
    command += ["--junit-xml", report, tests]
    ended = subprocess.run(command, stdout=sys.stderr, check=False)
    try:
        cases = list(xml.parse(report).iter("testcase"))
    except (OSError, xml.ParseError):
        print(f"{tests} failed ended with {ended.returncode}, without a report")
        continue
    for case in cases:
        name = case.get("name").removeprefix("test.").replace(" ", "_")
        problem = next((part for part in case if part.tag in ("failure", "error")), None)
        if problem is not None:
            said = (problem.text or "").strip().splitlines() or [""]
            print(f"{name} failed {said[-1]}")
        else:
            print(f"{name} {'skipped' if case.find('skipped') is not None else 'ok'}")
