//! What the environment says. `docs/turns.md` has all variables as a table.

use std::path::PathBuf;
use std::time::Duration;

use iogate_core::coord::backoff::BackoffConfig;
use iogate_core::units::parse_time;
use iogate_net::Endpoint;
use iogate_net::transport::auth::{Credential, Munge};
use iogate_net::transport::{TlsClient, dial_tls};
use iogate_net::turns::CoordinatorOptions;
use iogate_vfs::app::JOBS;

/// Characters of an application's name that are shown: an environment has room for more than a coordinator.
const APP_CHARS_MAX: usize = 64;

/// How a process waits for its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Not at all.
    #[default]
    None,
    /// By a coordinator.
    Lock,
    /// By probing the file system, and waiting while it is busy.
    Backoff,
    /// By a coordinator, and then by probing: for file systems that are also used by those who do not take turns.
    LockBackoff,
}

impl Policy {
    /// All of them.
    pub const ALL: [Policy; 4] = [Policy::None, Policy::Lock, Policy::Backoff, Policy::LockBackoff];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Policy::None => "none",
            Policy::Lock => "lock",
            Policy::Backoff => "backoff",
            Policy::LockBackoff => "lock+backoff",
        }
    }

    /// Whether a coordinator is asked.
    pub fn locks(self) -> bool {
        matches!(self, Policy::Lock | Policy::LockBackoff)
    }

    /// Whether the file system is probed.
    pub fn backs_off(self) -> bool {
        matches!(self, Policy::Backoff | Policy::LockBackoff)
    }
}

impl std::str::FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        let found = Policy::ALL.into_iter().find(|policy| policy.name() == text);
        found.ok_or_else(|| format!("expected lock, backoff, lock+backoff or none, found `{text}`"))
    }
}

/// A variable that says nothing sensible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}: expected {expected}, found `{found}`")]
pub struct SettingsError {
    /// Its name.
    pub variable: &'static str,
    /// What it may be.
    pub expected: String,
    /// What it is.
    pub found: String,
}

/// The files of a client's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Who signs those of the coordinators.
    pub authorities: PathBuf,
    /// The client's own.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The name in the coordinators' certificates, if not their host's.
    pub server_name: Option<String>,
}

/// How this process takes turns.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `IOGATE_COORD`: where coordinators are.
    pub coordinators: Vec<Endpoint>,
    /// `IOGATE_COORD_AUTH`: how to prove who one is.
    pub auth: Credential,
    /// `IOGATE_TLS_AUTHORITIES` and its sisters.
    pub tls: Option<TlsFiles>,
    /// `IOGATE_POLICY`.
    pub policy: Policy,
    /// `IOGATE_PLACES`: names of places by directory.
    pub places: Vec<(PathBuf, String)>,
    /// `IOGATE_FILES`: globs of files whose output is bulk.
    pub files: Vec<String>,
    /// `IOGATE_IDLE`: how long after its last write a turn that was recognised ends.
    pub idle: Duration,
    /// `IOGATE_PATIENCE`: how long to try to reach a coordinator.
    pub patience: Duration,
    /// `IOGATE_STRICT`: without a coordinator, fail.
    pub is_strict: bool,
    /// `IOGATE_VERBOSE`: say what is waited for.
    pub is_verbose: bool,
    /// The job: its claims may hold together. Empty: alone.
    pub party: String,
    /// What people call the job.
    pub label: String,
    /// `IOGATE_WEIGHT`: the share, where the coordinator goes by weights.
    pub weight: u32,
    /// `IOGATE_PERIOD`: how far the job's turns lie apart; zero is unknown.
    pub period: Duration,
    /// `IOGATE_CALIBRATION`: where calibrations are, the first of them where they are written.
    pub calibration: Vec<PathBuf>,
    /// How to probe and to back off; sizes and the quiet throughput are those of the calibration.
    pub backoff: BackoffConfig,
}

impl Settings {
    /// What this process's environment says.
    ///
    /// # Errors
    /// Names the first variable that is not right.
    pub fn from_environment() -> Result<Settings, SettingsError> {
        let text = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Settings::read(&text)
    }

    /// What these variables say. An empty one counts as one that is not there.
    ///
    /// # Errors
    /// As [`Settings::from_environment`].
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let get = |name: &str| variable(name).filter(|value| !value.is_empty());
        let coordinators = coordinators(&get)?;
        let default = if coordinators.is_empty() { Policy::None } else { Policy::Lock };
        let policy = match get("IOGATE_POLICY") {
            None => default,
            Some(text) => match text.parse::<Policy>() {
                Ok(policy) if policy.locks() && coordinators.is_empty() => {
                    let expected = format!("to be set for IOGATE_POLICY={text}: HOST:PORT or unix:PATH");
                    return Err(wrong("IOGATE_COORD", expected, ""));
                }
                Ok(policy) => policy,
                Err(_) => {
                    return Err(wrong("IOGATE_POLICY", "lock, backoff, lock+backoff or none", text));
                }
            },
        };
        let tls = tls(&get);
        let auth = auth(&get, &coordinators, tls.is_some())?;
        let (party, label) = job(&get);
        if get("IOGATE_JOB").is_some() && party.contains(char::is_control) {
            return Err(wrong(
                "IOGATE_JOB",
                "a name without control characters",
                party.escape_debug().to_string(),
            ));
        }
        let list = |name: &str| -> Vec<String> {
            let text = get(name).unwrap_or_default();
            text.split(':').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        Ok(Settings {
            coordinators,
            auth,
            tls,
            policy,
            places: places(&get)?,
            files: list("IOGATE_FILES"),
            idle: time(&get, "IOGATE_IDLE", Duration::from_secs(2))?,
            patience: time(&get, "IOGATE_PATIENCE", Duration::from_secs(30))?,
            is_strict: flag(&get, "IOGATE_STRICT")?,
            is_verbose: flag(&get, "IOGATE_VERBOSE")?,
            party,
            label,
            weight: match get("IOGATE_WEIGHT") {
                None => 1,
                Some(text) => match text.parse() {
                    Ok(weight) if weight > 0 => weight,
                    _ => return Err(wrong("IOGATE_WEIGHT", "a whole number from 1 on", text)),
                },
            },
            period: time(&get, "IOGATE_PERIOD", Duration::ZERO)?,
            calibration: calibration(&get),
            backoff: BackoffConfig::default(),
        })
    }

    /// How coordinators are reached.
    ///
    /// # Errors
    /// If the files of a certificate cannot be read.
    pub fn coordinator_options(&self) -> Result<CoordinatorOptions, SettingsError> {
        let node = rustix::system::uname();
        let mut options = CoordinatorOptions {
            name: format!("{}:{}", node.nodename().to_string_lossy(), std::process::id()),
            auth: self.auth.clone(),
            ..CoordinatorOptions::default()
        };
        if let Some(files) = &self.tls {
            let tls = TlsClient::load(&files.authorities, &files.certificate, &files.key);
            let tls = tls.map_err(|error| {
                let found = files.authorities.display().to_string();
                let expected =
                    format!("with IOGATE_TLS_CERTIFICATE and IOGATE_TLS_KEY, a certificate ({error})");
                wrong("IOGATE_TLS_AUTHORITIES", expected, found)
            })?;
            options.dial = dial_tls(tls, files.server_name.clone());
        }
        Ok(options)
    }
}

type Get<'a> = &'a dyn Fn(&str) -> Option<String>;

fn wrong(variable: &'static str, expected: impl Into<String>, found: impl Into<String>) -> SettingsError {
    SettingsError { variable, expected: expected.into(), found: found.into() }
}

fn coordinators(get: Get<'_>) -> Result<Vec<Endpoint>, SettingsError> {
    let Some(text) = get("IOGATE_COORD") else { return Ok(Vec::new()) };
    let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
    // From here on, wherever the program goes.
    let parse = |item: &str| {
        let endpoint = item.parse().ok().and_then(|endpoint: Endpoint| endpoint.absolute().ok());
        endpoint.ok_or_else(|| wrong("IOGATE_COORD", "HOST:PORT or unix:PATH, separated by commas", item))
    };
    items.map(parse).collect()
}

fn auth(get: Get<'_>, coordinators: &[Endpoint], has_tls: bool) -> Result<Credential, SettingsError> {
    const NAME: &str = "IOGATE_COORD_AUTH";
    match get(NAME).as_deref() {
        None if has_tls => Ok(Credential::Socket),
        None => Ok(Credential::usual(coordinators)),
        Some("none") => Ok(Credential::None),
        Some("munge") => Ok(Credential::Munge(Munge::new(None))),
        Some("tls") if has_tls => Ok(Credential::Socket),
        Some("tls") => Err(wrong("IOGATE_TLS_AUTHORITIES", "a PEM file, for IOGATE_COORD_AUTH=tls", "")),
        Some("peer") if coordinators.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_))) => {
            Ok(Credential::Socket)
        }
        Some("peer") => {
            Err(wrong(NAME, "munge, tls or none: the kernel knows only who is on this host", "peer"))
        }
        Some(found) => Err(wrong(NAME, "peer, munge, tls or none", found)),
    }
}

fn tls(get: Get<'_>) -> Option<TlsFiles> {
    // Whole, as `IOGATE_COORD`; what is not given stays empty.
    let whole = |text: String| std::path::absolute(&text).unwrap_or_else(|_| text.into());
    let path = |name: &str| get(name).map(whole).unwrap_or_default();
    Some(TlsFiles {
        authorities: whole(get("IOGATE_TLS_AUTHORITIES")?),
        certificate: path("IOGATE_TLS_CERTIFICATE"),
        key: path("IOGATE_TLS_KEY"),
        server_name: get("IOGATE_TLS_NAME"),
    })
}

fn places(get: Get<'_>) -> Result<Vec<(PathBuf, String)>, SettingsError> {
    const NAME: &str = "IOGATE_PLACES";
    let Some(text) = get(NAME) else { return Ok(Vec::new()) };
    let mut places: Vec<(PathBuf, String)> = Vec::new();
    for item in text.split(':').filter(|item| !item.is_empty()) {
        match item.split_once('=') {
            _ if item.contains(char::is_control) => {
                let found = item.escape_debug().to_string();
                return Err(wrong(NAME, "DIR=NAME without control characters", found));
            }
            Some((directory, name)) if directory.starts_with('/') && !name.is_empty() => {
                places.push((directory.into(), name.to_owned()));
            }
            // The rest of a name that has colons itself.
            None if !places.is_empty() => {
                if let Some((_, name)) = places.last_mut() {
                    *name = format!("{name}:{item}");
                }
            }
            _ => return Err(wrong(NAME, "DIR=NAME with an absolute DIR, separated by colons", item)),
        }
    }
    Ok(places)
}

fn time(get: Get<'_>, name: &'static str, default: Duration) -> Result<Duration, SettingsError> {
    let Some(text) = get(name) else { return Ok(default) };
    match parse_time(&text) {
        Some(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        None => Err(wrong(name, "a time with its unit, such as 250ms or 30s", text)),
    }
}

fn flag(get: Get<'_>, name: &'static str) -> Result<bool, SettingsError> {
    match get(name).as_deref() {
        None | Some("0" | "false" | "no" | "off") => Ok(false),
        Some("1" | "true" | "yes" | "on") => Ok(true),
        Some(found) => Err(wrong(name, "1 or 0", found)),
    }
}

/// The job's name for the coordinator, and for people. A session of a shell is no job: programs in it do not act together.
fn job(get: Get<'_>) -> (String, String) {
    if let Some(name) = get("IOGATE_JOB") {
        return (name.clone(), name);
    }
    let Some((variable, job)) = JOBS.into_iter().find_map(|name| Some((name, get(name)?))) else {
        let app = get("IOGATE_APP").map(|app| app.chars().take(APP_CHARS_MAX).collect());
        return (String::new(), app.unwrap_or_else(|| format!("pid {}", std::process::id())));
    };
    if variable != "SLURM_JOB_ID" {
        return (job.clone(), format!("job {job}"));
    }
    // Steps of a job run beside each other, each a program of its own; and clusters that share storage count their jobs alike.
    let step = get("SLURM_STEP_ID").map_or(String::new(), |step| format!(".{step}"));
    let cluster = get("SLURM_CLUSTER_NAME").map_or(String::new(), |cluster| format!("@{cluster}"));
    let name = get("SLURM_JOB_NAME").map_or(String::new(), |name| format!(" ({name})"));
    (format!("{job}{step}{cluster}"), format!("job {job}{step}{name}"))
}

fn calibration(get: Get<'_>) -> Vec<PathBuf> {
    const SYSTEM: &str = "/var/lib/iogate";
    if let Some(directory) = get("IOGATE_CALIBRATION") {
        return vec![directory.into()];
    }
    let own = get("XDG_STATE_HOME").filter(|path| path.starts_with('/')).map(PathBuf::from);
    let own = own.or_else(|| Some(PathBuf::from(get("HOME")?).join(".local/state")));
    own.map(|path| path.join("iogate")).into_iter().chain([SYSTEM.into()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        Settings::read(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_said_is_no_coordination() {
        let settings = read(&[("IOGATE_COORD", "")]).unwrap();
        assert_eq!(settings.policy, Policy::None);
        assert_eq!((settings.party.as_str(), settings.weight), ("", 1));
        assert_eq!((settings.patience, settings.idle), (Duration::from_secs(30), Duration::from_secs(2)));
        assert_eq!(settings.calibration, [PathBuf::from("/var/lib/iogate")]);
    }

    #[test]
    fn a_coordinator_means_locks() {
        let settings = read(&[
            ("IOGATE_COORD", "io1:7100, unix:/run/iogate/coord"),
            ("IOGATE_COORD_AUTH", "none"),
            ("IOGATE_PATIENCE", "1.5s"),
            ("IOGATE_PLACES", "/scratch=nfs:io1:/scratch:/data=data"),
            ("IOGATE_FILES", "*.ckpt:/out/**"),
            ("IOGATE_STRICT", "1"),
            ("HOME", "/home/a"),
        ])
        .unwrap();
        assert_eq!(settings.policy, Policy::Lock);
        assert_eq!(settings.coordinators.len(), 2);
        assert_eq!(settings.patience, Duration::from_millis(1500));
        let place = |directory: &str, name: &str| (PathBuf::from(directory), name.to_owned());
        assert_eq!(settings.places, [place("/scratch", "nfs:io1:/scratch"), place("/data", "data")]);
        assert_eq!(settings.files, ["*.ckpt", "/out/**"]);
        assert!(settings.is_strict && !settings.is_verbose);
        assert_eq!(settings.calibration[0], PathBuf::from("/home/a/.local/state/iogate"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (variables, variable, found) in [
            (&[("IOGATE_COORD", "io1:x")][..], "IOGATE_COORD", "io1:x"),
            (&[("IOGATE_POLICY", "lock")], "IOGATE_COORD", ""),
            (&[("IOGATE_POLICY", "locks")], "IOGATE_POLICY", "locks"),
            (&[("IOGATE_COORD_AUTH", "magic")], "IOGATE_COORD_AUTH", "magic"),
            (&[("IOGATE_COORD", "a:1"), ("IOGATE_COORD_AUTH", "peer")], "IOGATE_COORD_AUTH", "peer"),
            (&[("IOGATE_COORD_AUTH", "tls")], "IOGATE_TLS_AUTHORITIES", ""),
            (&[("IOGATE_PLACES", "scratch=x")], "IOGATE_PLACES", "scratch=x"),
            (&[("IOGATE_PLACES", "/scratch=a\nb")], "IOGATE_PLACES", "/scratch=a\\nb"),
            (&[("IOGATE_JOB", "a\tb")], "IOGATE_JOB", "a\\tb"),
            (&[("IOGATE_PATIENCE", "30")], "IOGATE_PATIENCE", "30"),
            (&[("IOGATE_STRICT", "maybe")], "IOGATE_STRICT", "maybe"),
            (&[("IOGATE_WEIGHT", "0")], "IOGATE_WEIGHT", "0"),
        ] {
            let error = read(variables).unwrap_err();
            assert_eq!((error.variable, error.found.as_str()), (variable, found));
            assert!(error.to_string().contains(variable), "{error}");
        }
    }

    #[test]
    fn a_job_is_a_party() {
        let party = |variables: &[_]| read(variables).unwrap().party;
        assert_eq!(party(&[("IOGATE_JOB", "mine"), ("SLURM_JOB_ID", "8")]), "mine");
        assert_eq!(party(&[("SLURM_JOB_ID", "8"), ("PMIX_NAMESPACE", "x")]), "8");
        let slurm = [("SLURM_JOB_ID", "8"), ("SLURM_STEP_ID", "1"), ("SLURM_CLUSTER_NAME", "big")];
        assert_eq!(party(&slurm), "8.1@big");
        assert_eq!(party(&[("PMIX_NAMESPACE", "prterun-node-77@1")]), "prterun-node-77@1");
    }

    #[test]
    fn who_is_of_no_job_is_called_as_its_application_and_stays_alone() {
        let who = |variables: &[(&str, &str)]| {
            let settings = read(variables).unwrap();
            (settings.party, settings.label)
        };
        let named = |party: &str, label: &str| (party.to_owned(), label.to_owned());
        assert_eq!(who(&[("IOGATE_APP", "solver")]), named("", "solver"));
        assert_eq!(who(&[("IOGATE_APP", "solver"), ("IOGATE_JOB", "mine")]), named("mine", "mine"));
        assert_eq!(who(&[("IOGATE_APP", "solver"), ("PBS_JOBID", "8")]), named("8", "job 8"));
        let long = "ä".repeat(5_000);
        assert_eq!(who(&[("IOGATE_APP", &long)]).1.chars().count(), APP_CHARS_MAX);
        assert_eq!(who(&[]), named("", &format!("pid {}", std::process::id())));
    }
}
