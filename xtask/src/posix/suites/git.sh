# git's own tests: git.sh FOLDER SCRATCH BUILD PATTERN... Prints a line for each test: its name, and ok, skipped or failed.
folder=$1 scratch=$2 tests=$3/source/t
shift 3
mkdir -p "$scratch/said" && cd "$tests" || exit 1
export GIT_TEST_DEFAULT_HASH=sha1
# Locally two at once, as on a mount: some tests of signals and daemons need the processor.
for pattern; do ls -d $pattern*.sh 2>/dev/null; done | sort -u |
    xargs -P 2 -I{} sh -c 'sh ./{} --no-color --root="$0" >"$1/said/{}" 2>&1 </dev/null' "$folder" "$scratch"
cd "$scratch/said" && for script in t*.sh; do
    awk -v name="${script%.sh}" '
        /^ok [0-9]+ .*# skip/ { print name "." $2, "skipped"; next }
        /^ok [0-9]+/ { print name "." $2, "ok"; next }
        /^not ok [0-9]+ .*# TODO/ { print name "." $3, "skipped"; next }
        /^not ok [0-9]+/ { print name "." $3, "failed", $0; next }
        /^1\.\.[0-9]+/ { ended = 1 }
        END { print name, ended ? "ok" : "failed did not reach its end" }' "$script"
done
