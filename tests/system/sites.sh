#!/usr/bin/env bash
# What there is for other systems than Slurm works as it is written: Kubernetes' files are valid, and the server, the mount and the probes that they
# name run so here; PBS' script takes turns as its job; Spack's recipe names what there is. Kubernetes, PBS and Spack themselves are not here.
# limit: 60
# variants: fifo
# shellcheck source=tests/system/lib.sh
. "$(dirname "$0")/lib.sh"

needs jq python3 openssl
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
examples=$ROOT/examples/kubernetes

echo "== Spack: the recipe, with a stand-in for Spack's module"
python3 - "$ROOT" <<'END' || fail "the recipe is not right"
import pathlib, re, sys, types

root = pathlib.Path(sys.argv[1])
said, ran = [], []
module = types.ModuleType("spack.package")
for directive in ("license", "version", "variant", "depends_on", "conflicts"):
    setattr(module, directive, lambda *args, _name=directive, **kwargs: said.append((_name, args, kwargs)))
module.run_after = lambda phase: lambda function: function
module.on_package_attributes = lambda **attributes: lambda function: function
module.join_path = lambda *parts: "/".join(map(str, parts))
module.Package = object
module.Executable = lambda path: lambda *args: ran.append((path, args))
module.env = {"PATH": "/bin"}


class SetEnv:
    def __init__(self, **variables):
        ran.append(("env", variables))

    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


module.set_env = SetEnv
sys.modules["spack"] = types.ModuleType("spack")
sys.modules["spack.package"] = module
recipe = {}
exec(compile((root / "packaging/spack/package.py").read_text(), "package.py", "exec"), recipe)
wanted = re.search(r'^rust-version = "(.*)"', (root / "Cargo.toml").read_text(), re.M)[1]
assert ("depends_on", (f"rust@{wanted}:",), {"type": "build"}) in said, said
# The compiler of an MPI need not lie in its bin.
place = types.SimpleNamespace(prefix=types.SimpleNamespace(bin="/mpi/bin", include="/slurm/include"), mpicc="/mpi/2021/bin/mpicc")


class Spec(dict):
    satisfies = staticmethod(lambda what: True)


recipe["Iogate"]().install(Spec(mpi=place, slurm=place), "/prefix")
for path, args in ran:
    assert path in ("cargo", "env") or (root / path).is_file(), path
crates = [arg.removeprefix("--package=") for path, args in ran if path == "cargo" for arg in args if arg.startswith("--package=")]
assert len(crates) == 5 and all((root / "crates" / crate).is_dir() for crate in crates), crates
END

echo "== PBS: the script, as PBS runs it"
coord=unix:$SIDE/coord
"$IOGATE" coord serve --listen "$coord" --state "$SIDE/state" >"$WORK/coord.out" 2>&1 &
eventually 10 test -S "$SIDE/coord" || fail "the coordinator does not listen: $(cat "$WORK/coord.out")"
printf '#!/bin/sh\nhead -c 100000 /dev/zero >"%s/result.ckpt"\n' "$SRC" >"$SIDE/program"
chmod +x "$SIDE/program"
PATH=$(dirname "$IOGATE"):$PATH
PBS_JOBID=17.site PBS_O_WORKDIR=$SIDE IOGATE_COORD=$coord TARGET=$SRC LAUNCHER='' PROGRAM=./program bash "$ROOT/examples/pbs-checkpoint.pbs" ||
    fail "the script failed"
[ "$("$IOGATE" coord status --json "$coord" | jq -r '.finished[] | .label')" = 17.site ] || fail "the job has had no turn by its name"
refused any "say the program" env PBS_JOBID=17.site IOGATE_COORD="$coord" TARGET="$SRC" bash "$ROOT/examples/pbs-checkpoint.pbs"

echo "== Kubernetes: by the schemas of its API"
python3 -c 'import kubernetes_validate' 2>/dev/null || skip "there is no kubernetes_validate (scripts/setup installs it into target/python)"
validate() { python3 -c '
import sys, kubernetes_validate, yaml
for one in yaml.safe_load_all(open(sys.argv[1])):
    kubernetes_validate.validate(one, kubernetes_validate.latest_version(), strict=True)' "$1"; }
for file in "$examples"/*.yaml; do validate "$file" || fail "$file is not valid"; done
sed 's/startupProbe/startProbe/' "$examples/pod.yaml" >"$SIDE/wrong.yaml"
! validate "$SIDE/wrong.yaml" 2>/dev/null || fail "a wrong key is not found"

echo "== Kubernetes: what its containers run, here"
mkdir -p "$SIDE/run" "$SIDE/etc/iogate/tls"
cd "$SIDE/etc/iogate/tls"
# As docs/security.md says.
new() { (umask 077 && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>/dev/null); }
signed() { openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -days 2 -copy_extensions copy -out "$1.crt" 2>/dev/null; }
new -x509 -days 2 -subj "/CN=iogate CA" -keyout ca.key -out ca.crt
new -subj "/CN=server" -addext "subjectAltName=DNS:iogate-forwarders.iogate.svc" -addext "extendedKeyUsage=serverAuth" -keyout server.key -out server.csr
new -subj "/CN=mount" -addext "extendedKeyUsage=clientAuth" -keyout mount.key -out mount.csr
signed server
signed mount
# used FILE KIND PART: of the object of a kind a part, which is an expression of Python, with this test's folders instead of containers'; texts one a line.
used() { python3 -c '
import sys, yaml
file, kind, part, side, src, mnt = sys.argv[1:]
one = next(one for one in yaml.safe_load_all(open(file)) if one["kind"] == kind)
found = eval(part, {"one": one, "pod": one.get("spec", {}).get("template", one).get("spec", {})})
text = found if isinstance(found, str) else "\n".join(found)
for there, here in {"/etc/iogate": f"{side}/etc/iogate", "/run/iogate": f"{side}/run", "\"/data\"": f"\"{src}\"", "/shared/scratch": mnt}.items():
    text = text.replace(there, here)
print(text)' "$1" "$2" "$3" "$SIDE" "$SRC" "$MNT"; }
# read_words FILE KIND PART: into `words` what a container runs, whose image begins with the program.
read_words() {
    mapfile -t words < <(used "$1" "$2" "$3")
    [ "${words[0]}" != iogate ] || words=("${words[@]:1}")
}
# run FILE KIND PART: runs it, to its end.
run() {
    local words
    read_words "$@"
    "${AS[@]}" "$IOGATE" "${words[@]}"
}
AS=()
cp server.crt tls.crt
cp server.key tls.key
used "$examples/forwarders.yaml" ConfigMap 'one["data"]["serve.toml"]' | sed 's/0\.0\.0\.0:7000/127.0.0.1:0/' >"$SIDE/etc/iogate/serve.toml"
# With no more rights than it says.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    rights=$(used "$examples/forwarders.yaml" Deployment '",".join("+" + name.lower() for name in pod["containers"][0]["securityContext"]["capabilities"]["add"])')
    AS=(setpriv --inh-caps=-all "--bounding-set=-all,$rights" --no-new-privs)
fi
read_words "$examples/forwarders.yaml" Deployment 'pod["containers"][0]["args"]'
# Not as a function, whose process is another one than the server's: the server is to end with the test.
"${AS[@]}" "$IOGATE" "${words[@]}" >"$WORK/server.out" 2>"$WORK/server.log" &
eventually 10 grep -q '^ready$' "$WORK/server.out" || fail "the server does not start: $(cat "$WORK/server.log")"
run "$examples/forwarders.yaml" Deployment 'pod["containers"][0]["readinessProbe"]["exec"]["command"]' >"$SIDE/said" || fail "it is not ready by its probe"
port=$(sed -n 's/^listening at .*127\.0\.0\.1:\([0-9]*\)$/\1/p' "$WORK/server.out")
AS=()
[ -c /dev/fuse ] || skip "there is no /dev/fuse"
# By a certificate of its own, and for the name that is the server's there.
cp mount.crt tls.crt
cp mount.key tls.key
used "$examples/pod.yaml" Pod 'pod["initContainers"][1]["command"] + pod["initContainers"][1]["args"]' | sed "s/iogate-forwarders.iogate.svc:7000/127.0.0.1:$port/" >"$SIDE/words"
mapfile -t words <"$SIDE/words"
probe() { run "$examples/pod.yaml" Pod 'pod["initContainers"][1]["startupProbe"]["exec"]["command"]' >/dev/null 2>&1; }
# Its program is the container's, by its name: PATH has it from above.
mount_pod() {
    "${words[@]}" --tls-name=iogate-forwarders.iogate.svc >>"$WORK/mount.log" 2>&1 &
    GATE_PID=$!
    up_or_gone() { probe || is_gone "$GATE_PID"; }
    eventually 10 up_or_gone && ! is_gone "$GATE_PID" || fail "the mount does not come up by its probe: $(cat "$WORK/mount.log")"
}
mount_pod
# As after a crash: what was mounted stays, and the container is started again.
kill -KILL "$GATE_PID"
{ wait "$GATE_PID" || true; } 2>/dev/null
! probe || fail "the mount answers although it was killed"
mount_pod
command=$(used "$examples/pod.yaml" Pod 'pod["containers"][0]["command"][2]')
IOGATE_APP=simulation sh -c "${command//count=64/count=2}" || fail "the program fails"
[ "$(stat -c %s "$SRC/result")" -eq $((2 << 20)) ] || fail "the server has not what the program wrote"
"$IOGATE" status "$MNT" | grep -q '^simulation ' || fail "the mount does not know the application"
unmount_gate
