//! `iogate run`: a program with the library that takes turns for it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use glob::Pattern;
use iogate_net::Endpoint;
use iogate_turn::{Policy, Settings};
use iogate_vfs::app::{BURST, JOBS};
use tempfile::NamedTempFile;

use crate::attempt::Attempt;
use crate::cli::RunArgs;
use crate::commands::child::{self, Signals};
use crate::commands::coord::Looking;
use crate::failure::Failure;
use crate::fitted;
use crate::output::say;

const LIBRARY: &str = "libiogate_preload.so";
/// What only processes have that a launcher has started as part of a parallel job.
const RANKS: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_STEP_ID"];

/// Variables that the program gets.
#[derive(Default)]
struct Environment(Vec<(&'static str, String)>);

impl Environment {
    fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.0.push((name, value.into()));
    }

    /// What the program will see; an empty variable counts as none.
    fn get(&self, name: &str) -> Option<String> {
        let given = self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        let value = given.or_else(|| Some(std::env::var_os(name)?.to_string_lossy().into_owned()));
        value.filter(|value| !value.is_empty())
    }
}

/// Runs the command.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut environment = environment(args)?;
    let settings = Settings::read(&|name| environment.get(name)).map_err(usage)?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    if settings.policy == Policy::None {
        if environment.get("IOGATE_POLICY").is_none() {
            let hint =
                "give the coordinator, as in --coord io1:7100, or --policy backoff, or none to run as it is";
            return Err(Failure::usage(anyhow!("there is no coordinator to take turns by")).hint(hint));
        }
        command.envs(environment.0.into_iter().filter(|(name, _)| *name == BURST));
        return Err(replaced(command));
    }
    if settings.files.is_empty() {
        let hint =
            "give --target DIR for all files below a directory, or --files PATTERN, as in --files '*.ckpt'";
        return Err(Failure::usage(anyhow!("nothing says which files are bulk output")).hint(hint));
    }
    if !settings.coordinators.is_empty() {
        environment.set("IOGATE_COORD", list_of(&settings.coordinators)?);
    }
    if let Some(tls) = &settings.tls {
        let files = [
            ("IOGATE_TLS_AUTHORITIES", &tls.authorities),
            ("IOGATE_TLS_CERTIFICATE", &tls.certificate),
            ("IOGATE_TLS_KEY", &tls.key),
        ];
        for (name, path) in files.into_iter().filter(|(_, path)| !path.as_os_str().is_empty()) {
            let path = path.to_str().ok_or_else(|| Failure::usage(anyhow!("{name}: not UTF-8")))?;
            environment.set(name, path);
        }
    }
    environment.set("LD_PRELOAD", preload(&library(args.library.as_deref())?)?);
    if RANKS.into_iter().any(|name| environment.get(name).is_some()) {
        // That this rank writes nothing does not mean that the job does not.
        command.envs(environment.0);
        return Err(replaced(command));
    }
    let signals = Signals::new()?;
    let looking = Looking::begin(&settings);
    let found = Found::create(settings.files).context("cannot make a file to note what is found in")?;
    command.envs(environment.0).env("IOGATE_FOUND", found.file.path());
    let status = signals.run(command)?;
    looking.end();
    found.warn();
    drop(found);
    std::process::exit(child::code(status));
}

/// Has the program take this process's place; returns why it cannot.
fn replaced(mut command: Command) -> Failure {
    let error = command.exec();
    child::not_started(&command, error)
}

/// `IOGATE_COORD` with whole paths: the program may change its directory before it asks.
fn list_of(coordinators: &[Endpoint]) -> Result<String, Failure> {
    let cannot_be_listed = |path: &Path| path.to_str().is_none_or(|path| path.contains(','));
    let texts = coordinators.iter().map(|coordinator| match coordinator {
        Endpoint::Unix(path) if cannot_be_listed(path) => {
            let error = anyhow!("{}: the socket's path has a comma, or is not UTF-8", path.display());
            Err(Failure::usage(error).hint("give another, or go elsewhere: lists are separated by commas"))
        }
        coordinator => Ok(coordinator.to_string()),
    });
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join(","))
}

/// A setting that is not right, by the flag that people know.
fn usage(error: iogate_turn::SettingsError) -> Failure {
    let flag = match error.variable {
        "IOGATE_COORD" => Some("--coord"),
        "IOGATE_POLICY" => Some("--policy"),
        "IOGATE_PLACES" => Some("--target"),
        _ => None,
    };
    let hint = flag.map(|flag| format!("{flag} sets {}", error.variable));
    let failure = Failure::usage(error);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

/// What the flags say, as variables.
fn environment(args: &RunArgs) -> Result<Environment, Failure> {
    if let Some(job) = args.job.as_ref().filter(|job| job.is_empty() || job.contains(char::is_control)) {
        let error = anyhow!("--job: expected a name without control characters, found {job:?}");
        return Err(Failure::usage(error).hint("leave --job out for a name of this run's own"));
    }
    let mut environment = Environment::default();
    let given = [
        ("IOGATE_COORD", &args.coord),
        ("IOGATE_POLICY", &args.policy),
        ("IOGATE_PATIENCE", &args.patience.as_ref().map(|time| time.0.clone())),
        ("IOGATE_IDLE", &args.idle.as_ref().map(|time| time.0.clone())),
        ("IOGATE_STRICT", &args.strict.then(|| "1".to_owned())),
        ("IOGATE_WEIGHT", &args.weight.map(|weight| weight.to_string())),
        ("IOGATE_JOB", &args.job),
        (BURST, &args.burst.map(|burst| burst.0.to_string())),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            environment.set(name, value.clone());
        }
    }
    if environment.get("IOGATE_JOB").is_none() && JOBS.into_iter().all(|name| environment.get(name).is_none())
    {
        environment.set("IOGATE_JOB", own_job(environment.get("IOGATE_APP").as_deref()));
    }
    let mut places: Vec<String> = Vec::new();
    let mut patterns = Vec::new();
    for target in &args.targets {
        let (directory, name) =
            target.split_once('=').map_or((&target[..], None), |(dir, name)| (dir, Some(name)));
        let directory = directory_of(directory)?;
        match name {
            Some(name) if name.is_empty() || name.contains(char::is_control) => {
                let error = anyhow!("--target {target}: expected a name after =, without control characters");
                return Err(Failure::usage(error).hint("leave = out, too, for a name made of the mount"));
            }
            Some(name) => {
                let place = format!("{directory}={name}");
                // Jobs that take turns by the other name would not meet this one.
                if let Some(other) = places.iter().find(|other| is_of(other, &directory) && **other != place)
                {
                    let error = anyhow!(
                        "--target {target}: {other} is given, too: expected one name for a directory"
                    );
                    return Err(Failure::usage(error).hint("give the name that the other jobs give"));
                }
                places.push(place);
            }
            None => {}
        }
        if args.files.is_empty() {
            patterns.push(format!("{}/**", Pattern::escape(directory.trim_end_matches('/'))));
        }
    }
    if !places.is_empty() {
        // The first of two for one directory counts.
        places.extend(environment.get("IOGATE_PLACES"));
        environment.set("IOGATE_PLACES", places.join(":"));
    }
    for pattern in &args.files {
        patterns.push(pattern_of(pattern)?);
    }
    if !patterns.is_empty() {
        environment.set("IOGATE_FILES", patterns.join(":"));
    }
    Ok(environment)
}

/// Whether a place, `DIR=NAME`, is that of a directory.
fn is_of(place: &str, directory: &str) -> bool {
    place.rsplit_once('=').is_some_and(|(of, _)| of.trim_end_matches('/') == directory.trim_end_matches('/'))
}

/// A directory's path from the root.
fn directory_of(text: &str) -> Result<String, Failure> {
    let wrong =
        |why: String| Failure::usage(anyhow!("--target {text}: {why}")).hint("expected DIR or DIR=NAME");
    let path = Path::new(text)
        .canonicalize()
        .with_context(|| Attempt::enter(format_args!("--target {text}: it")))
        .map_err(Failure::usage)?;
    if !path.is_dir() {
        return Err(wrong("this is not a directory".into()));
    }
    // As it was written: programs may know it by that name, and the name of a place is looked up by both.
    let path = std::path::absolute(text).map_err(|error| wrong(error.to_string()))?;
    match path.to_str() {
        Some(path) if !path.contains([':', '=']) => Ok(path.to_owned()),
        _ => Err(wrong("the path has a colon, an equals sign, or is not UTF-8".into())),
    }
}

/// A pattern as the library understands it from any working directory.
fn pattern_of(text: &str) -> Result<String, Failure> {
    let wrong = |why: &str| {
        Failure::usage(anyhow!("--files '{text}': {why}"))
            .hint("expected a glob such as '*.ckpt' or '/scratch/run7/**'")
    };
    if text.is_empty() || text.contains(':') {
        return Err(wrong("a pattern is not empty, and has no colon"));
    }
    Pattern::new(text).map_err(|error| wrong(&format!("character {}: {}", error.pos + 1, error.msg)))?;
    if text.ends_with('/') {
        return Err(wrong("this can only be a directory: add ** for all files below"));
    }
    if !text.contains('/') || text.starts_with('/') || text.starts_with("**/") {
        return Ok(text.to_owned());
    }
    let here = std::env::current_dir().context("there is no working directory")?;
    let here = here.to_str().filter(|here| !here.contains(':'));
    let here = here
        .ok_or_else(|| wrong("give the whole path, as that of this directory has a colon or is not UTF-8"))?;
    Ok(format!("{}/{}", Pattern::escape(here.trim_end_matches('/')), text.trim_start_matches("./")))
}

/// A name for a job that has none: the same in all processes that this one starts, and in the ranks of a launcher that does not
/// name its jobs, which are its children. It begins with the application's, by which people know it.
fn own_job(app: Option<&str>) -> String {
    let app = app.map_or_else(String::new, |app| format!("{}@", fitted::name(app)));
    let node = rustix::system::uname();
    let node = node.nodename().to_string_lossy();
    if RANKS.into_iter().any(|name| std::env::var_os(name).is_some()) {
        return format!(
            "{app}{node}:{}",
            rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get())
        );
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{app}{node}:{}:{}", std::process::id(), now.as_millis())
}

/// Where the library is.
fn library(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().context("cannot find this program's own folder")?;
    let own = own.parent().unwrap_or(Path::new("/"));
    let candidates = match given {
        Some(path) => vec![path.to_owned()],
        None => ["", "../lib", "../lib/iogate"].map(|folder| own.join(folder).join(LIBRARY)).to_vec(),
    };
    if let Some(found) =
        candidates.iter().find_map(|path| path.canonicalize().ok().filter(|path| path.is_file()))
    {
        // The loader goes on without what it cannot load, and the program would run without turns.
        check_library(&found).map_err(|why| {
            Failure::usage(anyhow!("{} is not {LIBRARY}: {why}", found.display()))
                .hint("--library says where it is; `cargo build --release -p iogate-preload` makes it")
        })?;
        return Ok(found);
    }
    let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
    Err(Failure::usage(anyhow!("there is no library at {}", looked.join(", nor at ")))
        .hint("`cargo build --release -p iogate-preload` makes it; --library says where it is"))
}

/// Whether a file is the library, for machines of this kind.
fn check_library(path: &Path) -> Result<(), String> {
    /// Up to what the machine is, and where a header says which kind of file this is: 3 is a shared object.
    const HEADER_BYTES: usize = 20;
    const TYPE: std::ops::Range<usize> = 16..18;
    const SHARED: [u8; 2] = 3_u16.to_ne_bytes();
    let text = |error: io::Error| error.to_string();
    let mut own = [0; HEADER_BYTES];
    File::open("/proc/self/exe").and_then(|mut file| file.read_exact(&mut own)).map_err(text)?;
    own[TYPE].copy_from_slice(&SHARED);
    let bytes = std::fs::read(path).map_err(text)?;
    // Magic number, word size and byte order; kind and machine.
    let is_alike = |range: std::ops::Range<usize>| bytes.get(range.clone()) == own.get(range);
    if !is_alike(0..6) || !is_alike(16..HEADER_BYTES) {
        return Err("expected a shared library for this machine".into());
    }
    match memchr::memmem::find(&bytes, b"iogate_is_bulk") {
        Some(_) => Ok(()),
        None => Err("it is another library".into()),
    }
}

/// `LD_PRELOAD` with the library, before what is there.
fn preload(library: &Path) -> Result<String, Failure> {
    let Some(library) = library.to_str().filter(|path| !path.contains([' ', ':'])) else {
        return Err(Failure::usage(anyhow!(
            "{}: LD_PRELOAD cannot name a path with a space or a colon",
            library.display()
        ))
        .hint("link to it where there is neither, as by `ln -s`, and name that link with --library"));
    };
    let there = std::env::var_os("LD_PRELOAD").map(|there| there.to_string_lossy().into_owned());
    Ok(match there.filter(|there| !there.trim().is_empty()) {
        Some(there) if there.split([' ', ':']).any(|path| path == library) => there,
        Some(there) => format!("{library}:{there}"),
        None => library.to_owned(),
    })
}

/// Which patterns have found a file: a byte for each in a file that the library writes to.
struct Found {
    patterns: Vec<String>,
    file: NamedTempFile,
}

impl Found {
    fn create(patterns: Vec<String>) -> io::Result<Found> {
        let mut file = tempfile::Builder::new().prefix("iogate-run-").tempfile()?;
        file.write_all(&vec![b'0'; patterns.len()])?;
        Ok(Found { patterns, file })
    }

    /// Says which have found none.
    fn warn(&self) {
        let mut noted = Vec::new();
        let read =
            File::open(self.file.path()).and_then(|mut file| io::Read::read_to_end(&mut file, &mut noted));
        if read.is_err() {
            return;
        }
        for (pattern, _) in self.patterns.iter().zip(&noted).filter(|(_, noted)| **noted == b'0') {
            say(format_args!(
                "warning: no program has opened a file for writing on this machine that fits '{pattern}': no turns were taken for it"
            ));
        }
    }
}
