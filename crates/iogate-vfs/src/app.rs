//! Which application a process belongs to, by its environment: the one rule for mounts and for clients.
//!
//! The first of these that there is:
//! 1. `IOGATE_APP`: a number, or a word that stands for one;
//! 2. the line for its program in an [`AppFile`];
//! 3. the job of a batch system or a launcher, the same in all processes of one MPI job ([`JOBS`]);
//! 4. the session.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use iogate_core::glob::name_fits;
use iogate_core::units::parse_size;
use iogate_core::{AppId, BurstSize};

/// Words and sessions have ranges of their own, away from job numbers and from small numbers chosen by people.
const WORDS: u32 = 0xC000_0000;
const SESSIONS: u32 = 0x8000_0000;
/// Users of low numbers are told by their own, others by a hash.
const USERS: u32 = 0xA000_0000;
const HIGH_USERS: u32 = 0xB000_0000;
const USER_BITS: u32 = 28;
/// And groups. Sessions have numbers of 22 bits.
const GROUPS: u32 = 0x9000_0000;
const HIGH_GROUPS: u32 = 0x8800_0000;
const HIGH_GROUP_BITS: u32 = 27;
/// All groups that there is no room to tell apart.
pub const REST_OF_GROUPS: AppId = AppId(0x8400_0000);

/// Variables that name a job: the batch systems', whose numbers people know, before those of launchers alone.
pub const JOBS: [&str; 7] = [
    "SLURM_JOB_ID",
    "FLUX_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "PMI_JOBID",
];

/// Variables that name the account that a job is charged to: Slurm's, and what LSF calls a project.
pub const ACCOUNTS: [&str; 2] = ["SLURM_JOB_ACCOUNT", "LSB_PROJECT_NAME"];

/// A process, as far as its application depends on it.
pub trait Process {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// Its program.
    fn program(&self) -> Option<PathBuf>;
    /// Its session; 0 is unknown.
    fn session(&self) -> u32;
}

/// The calling process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own;

impl Process for Own {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
    }

    fn program(&self) -> Option<PathBuf> {
        std::env::current_exe().ok()
    }

    fn session(&self) -> u32 {
        // Not rustix's, which has no word for a session whose leader is outside this process-id namespace (a container's).
        // SAFETY: asks for a number, and cannot fail for the calling process.
        let session = unsafe { libc::getsid(0) };
        u32::try_from(session).unwrap_or(0)
    }
}

/// The application of a process, and what people call it; `None` if nothing says.
pub fn application(process: &dyn Process, programs: &AppFile) -> Option<(AppId, String)> {
    if let Some(word) = first_of(process, &["IOGATE_APP"]) {
        return Some((application_of_word(&word), word));
    }
    if let Some(found) = programs.find_for(process) {
        return Some(found);
    }
    if let Some(job) = job(process) {
        return Some(job);
    }
    match process.session() {
        0 => None,
        session => Some((AppId(SESSIONS | session), format!("session {session}"))),
    }
}

/// The job of a process, as an application, and what people call it; `None` if it is in none.
pub fn job(process: &dyn Process) -> Option<(AppId, String)> {
    let job = first_of(process, &JOBS)?;
    Some((application_of_word(&job), format!("job {job}")))
}

/// The account that a process's job is charged to, as a class, and what people call it; `None` if nothing says.
pub fn account(process: &dyn Process) -> Option<(AppId, String)> {
    let account = first_of(process, &ACCOUNTS)?;
    Some((application_of_account(&account), format!("account {account}")))
}

/// The variable by which a process says how much its application moves in a burst, read and written by all its processes together.
pub const BURST: &str = "IOGATE_BURST";
/// Most characters of a value that are shown.
const SHOWN_MAX: usize = 64;

/// How much a process says that its application moves in a burst.
///
/// # Errors
/// What is wrong with the value, if that is no size. It then counts as not said.
pub fn burst(process: &dyn Process) -> Result<BurstSize, String> {
    let Some(text) = first_of(process, &[BURST]) else { return Ok(BurstSize::UNKNOWN) };
    let wrong = || {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        format!("{BURST}: expected a number of bytes such as 10GiB, found {shown:?}; it counts as not said")
    };
    parse_size(&text).map(BurstSize::of).ok_or_else(wrong)
}

/// The same of the calling process, whose environment is looked at once; says itself what is wrong.
pub fn own_burst() -> BurstSize {
    /// Set in what is known, so that nothing said can be.
    const KNOWN: u32 = 1 << 16;
    static SAID: AtomicU32 = AtomicU32::new(0);
    let known = SAID.load(Ordering::Relaxed);
    if known != 0 {
        return BurstSize::from_bits(known as u16);
    }
    let found = burst(&Own);
    let said = found.as_ref().copied().unwrap_or_default();
    let is_first = SAID.swap(KNOWN | u32::from(said.bits()), Ordering::Relaxed) == 0;
    if let Err(why) = found
        && is_first
    {
        tracing::warn!("{why}");
    }
    said
}

/// The first of these variables that says something.
fn first_of(process: &dyn Process, names: &[&str]) -> Option<String> {
    names.iter().find_map(|name| process.variable(name).filter(|value| !value.is_empty()))
}

/// An account as a class, which no application of the same name is.
pub fn application_of_account(name: &str) -> AppId {
    application_of_word(&format!("account {name}"))
}

/// A glob of paths as a class, which no application of the same name is.
pub fn application_of_glob(glob: &str) -> AppId {
    application_of_word(&format!("path {glob}"))
}

/// A user as an application.
pub fn application_of_user(uid: u32) -> AppId {
    if uid >> USER_BITS == 0 {
        return AppId(USERS | uid);
    }
    AppId(HIGH_USERS | stable_hash(&uid.to_le_bytes()) >> (u32::BITS - USER_BITS))
}

/// A group of users as a class that they are within.
pub fn application_of_group(gid: u32) -> AppId {
    if gid >> USER_BITS == 0 {
        return AppId(GROUPS | gid);
    }
    AppId(HIGH_GROUPS | stable_hash(&gid.to_le_bytes()) >> (u32::BITS - HIGH_GROUP_BITS))
}

/// The group that a class is, if it is one of those that can be told by it.
pub fn group_of_application(app: AppId) -> Option<u32> {
    (app.0 >> USER_BITS == GROUPS >> USER_BITS).then_some(app.0 & ((1 << USER_BITS) - 1))
}

/// The user that an application is, if it is one of those that can be told by it.
pub fn user_of_application(app: AppId) -> Option<u32> {
    (app.0 >> USER_BITS == USERS >> USER_BITS).then_some(app.0 & ((1 << USER_BITS) - 1))
}

/// The id that a value of `IOGATE_APP` stands for: the number that it is, or a stable one for a word.
pub fn application_of_word(word: &str) -> AppId {
    match word.parse() {
        Ok(number) if number != 0 => AppId(number),
        _ => AppId(WORDS | stable_hash(word.as_bytes())),
    }
}

/// FNV-1a: the same number for a word in every process, on every node, in every version.
pub fn stable_hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Fixed applications of programs: lines of `NAME_OR_GLOB ID`, of which the first that fits counts. In a glob, `*` stands for
/// any characters and `?` for one. `#` begins a comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppFile {
    lines: Vec<(String, String)>,
}

impl AppFile {
    /// The file that `IOGATE_APP_FILE` names in the calling process's own environment (never in another's, who could make
    /// this one read what it likes); empty if it names none. Fails as [`AppFile::read`].
    pub fn from_environment() -> io::Result<AppFile> {
        match std::env::var_os("IOGATE_APP_FILE").filter(|path| !path.is_empty()) {
            Some(path) => AppFile::read(Path::new(&path)),
            None => Ok(AppFile::default()),
        }
    }

    /// Reads a file. Fails if it cannot be read, or says which of its lines is not `NAME_OR_GLOB ID`.
    pub fn read(path: &Path) -> io::Result<AppFile> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(named)?;
        AppFile::parse(&text).map_err(|error| named(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    fn parse(text: &str) -> Result<AppFile, String> {
        let mut lines = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(program), Some(id), None) => lines.push((program.into(), id.into())),
                _ => return Err(format!("line {}: expected NAME_OR_GLOB ID, found `{line}`", index + 1)),
            }
        }
        Ok(AppFile { lines })
    }

    fn find_for(&self, process: &dyn Process) -> Option<(AppId, String)> {
        if self.lines.is_empty() {
            return None;
        }
        self.find(process.program()?.file_name()?)
    }

    /// The application of a program, by its name without directories.
    pub fn find(&self, program: &OsStr) -> Option<(AppId, String)> {
        let (_, id) = self.lines.iter().find(|(glob, _)| name_fits(glob.as_bytes(), program.as_bytes()))?;
        Some((application_of_word(id), program.to_string_lossy().into_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Given<'a>(&'a [(&'a str, &'a str)], u32);

    impl Process for Given<'_> {
        fn variable(&self, name: &str) -> Option<String> {
            self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        }

        fn program(&self) -> Option<PathBuf> {
            Some("/opt/bin/lmp_mpi".into())
        }

        fn session(&self) -> u32 {
            self.1
        }
    }

    #[test]
    fn words_are_stable_and_numbers_are_themselves() {
        assert_eq!(application_of_word("7"), AppId(7));
        assert_eq!(application_of_word("4294967295"), AppId(u32::MAX));
        assert_eq!(application_of_word("lammps"), application_of_word("lammps"));
        assert_ne!(application_of_word("lammps"), application_of_word("gromacs"));
        assert_ne!(application_of_word("0"), AppId(0));
    }

    #[test]
    fn users_are_applications_of_their_own() {
        for uid in [0, 1000, 65_534, (1 << USER_BITS) - 1] {
            assert_eq!(user_of_application(application_of_user(uid)), Some(uid));
        }
        let high = [1 << USER_BITS, 1_234_567_890, u32::MAX - 1].map(application_of_user);
        assert!(high.iter().all(|app| app.0 >> USER_BITS == HIGH_USERS >> USER_BITS));
        assert!(high[0] != high[1] && high[1] != high[2] && user_of_application(high[0]).is_none());
        for gid in [0, 1000, (1 << USER_BITS) - 1] {
            assert_eq!(group_of_application(application_of_group(gid)), Some(gid));
        }
        let high = [1 << USER_BITS, u32::MAX - 1].map(application_of_group);
        assert!(high.iter().all(|app| app.0 >> HIGH_GROUP_BITS == HIGH_GROUPS >> HIGH_GROUP_BITS));
        for other in
            [AppId(7), AppId(SESSIONS | 4_194_304), application_of_word("lammps"), high[0], REST_OF_GROUPS]
        {
            assert_eq!((user_of_application(other), group_of_application(other)), (None, None));
        }
        assert_eq!(
            job(&Given(&[("IOGATE_APP", "7"), ("SLURM_JOB_ID", "8")], 9)),
            Some((AppId(8), "job 8".into()))
        );
        assert_eq!(job(&Given(&[("IOGATE_APP", "7")], 9)), None);
    }

    #[test]
    fn what_is_said_first_counts() {
        let named = |variables: &[_], session| application(&Given(variables, session), &AppFile::default());
        assert_eq!(named(&[("IOGATE_APP", "7"), ("SLURM_JOB_ID", "8")], 9), Some((AppId(7), "7".into())));
        let slurm = [("PMIX_NAMESPACE", "slurm.pmix.8.1"), ("SLURM_JOB_ID", "8"), ("IOGATE_APP", "")];
        assert_eq!(named(&slurm, 9), Some((AppId(8), "job 8".into())));
        let launched = named(&[("PMIX_NAMESPACE", "prterun-node-77@1")], 9);
        assert_eq!(launched.map(|(_, name)| name).as_deref(), Some("job prterun-node-77@1"));
        assert_eq!(named(&[], 9), Some((AppId(SESSIONS | 9), "session 9".into())));
        assert_eq!(named(&[], 0), None);
    }

    #[test]
    fn what_an_application_moves_is_said_as_a_size() {
        let said = |value: &str| burst(&Given(&[(BURST, value)], 9));
        assert_eq!(said("10GiB"), Ok(BurstSize::of(10 << 30)));
        assert_eq!(said("1.5 MiB").map(BurstSize::bytes), Ok(Some(3 << 19)));
        assert_eq!((said(""), said("0")), (Ok(BurstSize::UNKNOWN), Ok(BurstSize::UNKNOWN)));
        assert_eq!(burst(&Given(&[], 9)), Ok(BurstSize::UNKNOWN));
        for wrong in ["much", "-1GiB", "10GiB/s", "10 potatoes\u{1b}[2J"] {
            let why = said(wrong).unwrap_err();
            assert!(
                why.starts_with("IOGATE_BURST: expected a number of bytes such as 10GiB, found \""),
                "{why}"
            );
            assert!(why.contains(wrong.split('\u{1b}').next().unwrap()), "{why}");
            assert!(!why.contains(char::is_control), "{why:?}");
        }
        assert!(said(&"9".repeat(1_000)).unwrap_err().len() < 200);
    }

    #[test]
    fn a_file_gives_programs_fixed_applications() {
        let file = AppFile::parse("# ours\nlmp_* 3 # LAMMPS\n\ngmx simulation\n* 4\n").unwrap();
        let given = Given(&[("SLURM_JOB_ID", "8")], 9);
        assert_eq!(application(&given, &file), Some((AppId(3), "lmp_mpi".into())));
        let find = |name: &str| file.find(name.as_ref()).map(|(app, _)| app);
        assert_eq!(find("lmp_mpi"), Some(AppId(3)));
        assert_eq!(find("gmx"), Some(application_of_word("simulation")));
        assert_eq!(find("gmx2"), Some(AppId(4)));
        let error = AppFile::parse("a 1\nb\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("NAME_OR_GLOB ID"), "{error}");
    }
}
