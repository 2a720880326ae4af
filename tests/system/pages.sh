#!/usr/bin/env bash
# The commands of README.md and of all pages of the handbook do what the pages say, as printed: see pages.py. The
# pictures of the explanations show what the program does.
# limit: 300
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs unshare ip python3 fio jq
[ "$(id -u)" -eq 0 ] || skip "it takes root, for namespaces of its own"
unshare --mount --pid --net --uts --fork true || skip "there are no namespaces"
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
here=$(cd "$(dirname "$0")" && pwd)
"$here/../../scripts/pictures" --program "$IOGATE" --check || fail "pictures of the handbook are not what the program does"
# What is wrong is found.
mistake() {
    printf '%s\n' "$@" >"$SIDE/mistake.md"
    ! python3 "$here/pages.py" --program "$IOGATE" --work "$SIDE/mistake" "$SIDE/mistake.md" >"$SIDE/said" || fail "this page is right: $*"
}
mistake '```console' '$ echo one' 'two' '```'
grep -F 'line 2: `echo one` was to print' "$SIDE/said" || fail "it does not say which line was not printed"
mistake '```sh' 'true' '```' '' '```sh' 'false' 'true' '```'
grep -F 'line 6: ended here' "$SIDE/said" || fail "it does not say which block failed"
mistake '```sh no-run' 'false' '```'
mistake '```console' 'echo one' '```'
python3 "$here/pages.py" --program "$IOGATE" --work "$SIDE" || fail "the last lines of the page that failed are above"
