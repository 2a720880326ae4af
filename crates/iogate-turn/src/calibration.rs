//! How fast a file system is when nobody else uses it: what probes are compared with. One small JSON file for each.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use iogate_core::coord::backoff::BackoffConfig;
use serde::{Deserialize, Serialize};

use crate::Place;
use crate::probe::{ProbeError, measure};

/// Most bytes of a file's name; the kernel's limit is 255.
const NAME_BYTES_MAX: usize = 200;

/// What was measured of a quiet file system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// The name of the place.
    pub place: String,
    /// Bytes of a probe.
    pub probe_bytes: u64,
    /// Bytes written before each, not timed.
    pub prime_bytes: u64,
    /// The median throughput, in bytes per second.
    pub quiet: u64,
    /// The smallest.
    pub lowest: u64,
    /// The largest.
    pub highest: u64,
    /// Probes measured.
    pub rounds: u32,
    /// Thousandths of the rounds that were slower than the threshold: a probe would have called the quiet file system busy.
    pub busy: u32,
    /// When, in seconds since the Unix epoch.
    pub time: u64,
}

impl Calibration {
    /// Measures a directory's file system, which nobody else should use meanwhile, with probes as `config` has them: `quiet` aside.
    ///
    /// # Errors
    /// If the directory cannot be written to.
    pub fn measure(place: &Place, config: &BackoffConfig, rounds: u32) -> Result<Calibration, ProbeError> {
        let directory =
            place.directory().ok_or_else(|| ProbeError::NoDirectory { place: place.name().into() })?;
        let failed = |errno: rustix::io::Errno| ProbeError::Directory {
            directory: directory.to_owned(),
            source: errno.into(),
        };
        let room = rustix::fs::statvfs(directory).map_err(failed)?;
        let (bytes, free) = (config.probe_bytes, room.f_bavail.saturating_mul(room.f_frsize));
        // Some file systems do not know how much room they have.
        if room.f_blocks > 0 && config.prime_bytes.saturating_add(bytes) > free {
            return Err(ProbeError::NoRoom { directory: directory.to_owned(), bytes, free });
        }
        let mut throughputs = Vec::new();
        for round in 0..rounds.max(1) {
            if round > 0 {
                std::thread::sleep(config.pause.into());
            }
            let elapsed = measure(directory, config.prime_bytes, config.probe_bytes)?;
            throughputs.push(throughput(config.probe_bytes, elapsed));
        }
        throughputs.sort_unstable();
        let quiet = throughputs[throughputs.len() / 2];
        let enough = u128::from(quiet) * u128::from(config.threshold) / 1000;
        let slow = throughputs.iter().filter(|&&one| u128::from(one) < enough).count();
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Calibration {
            place: place.name().to_owned(),
            probe_bytes: config.probe_bytes,
            prime_bytes: config.prime_bytes,
            quiet,
            lowest: throughputs[0],
            highest: throughputs[throughputs.len() - 1],
            rounds: throughputs.len() as u32,
            busy: (slow * 1000 / throughputs.len()) as u32,
            time: since.as_secs(),
        })
    }

    /// Whether probes can tell a quiet file system from a busy one: at most one round in ten was slower than the threshold.
    pub fn is_steady(&self) -> bool {
        self.busy <= 100
    }

    /// A wait by this calibration.
    pub fn apply(&self, config: &BackoffConfig) -> BackoffConfig {
        BackoffConfig {
            probe_bytes: self.probe_bytes,
            prime_bytes: self.prime_bytes,
            quiet: self.quiet,
            ..config.clone()
        }
    }

    /// The calibration of a place, from the first of the directories that has one.
    ///
    /// # Errors
    /// If none has, or its file is not one.
    pub fn read(place: &str, directories: &[PathBuf]) -> Result<Calibration, ProbeError> {
        for directory in directories {
            let path = path(directory, place);
            let wrong = |why: String| ProbeError::Calibration { path: path.clone(), why };
            let text = match fs::read(&path) {
                Ok(text) => text,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
                {
                    continue;
                }
                Err(error) => return Err(wrong(error.to_string())),
            };
            let found: Calibration =
                serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
            if found.quiet == 0 || found.probe_bytes == 0 {
                return Err(wrong("expected `quiet` and `probe_bytes` above 0".into()));
            }
            return Ok(found);
        }
        Err(ProbeError::NotCalibrated { place: place.into(), directories: directories.to_vec() })
    }

    /// Writes the file, whole or not at all, and returns where it is. Makes the directory if it is not there.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, directory: &Path) -> Result<PathBuf, ProbeError> {
        let path = path(directory, &self.place);
        let write = || -> io::Result<()> {
            fs::create_dir_all(directory)?;
            let beside = path.with_extension(format!("{}.tmp", std::process::id()));
            fs::write(&beside, serde_json::to_vec_pretty(self)?)?;
            fs::rename(&beside, &path).inspect_err(|_| drop(fs::remove_file(&beside)))
        };
        write().map_err(|error| ProbeError::Calibration { path: path.clone(), why: error.to_string() })?;
        Ok(path)
    }
}

/// Bytes per second.
pub(crate) fn throughput(bytes: u64, elapsed: Duration) -> u64 {
    let per_second = u128::from(bytes) * 1_000_000_000 / elapsed.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(u64::MAX)
}

/// The file of a place.
fn path(directory: &Path, place: &str) -> PathBuf {
    directory.join(format!("{}.json", file_name(place)))
}

/// A name for a file of a place: its own, with bytes that may be awkward there as %XX.
pub fn file_name(place: &str) -> String {
    let mut name = String::new();
    for byte in place.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    if name.len() > NAME_BYTES_MAX {
        // FNV-1a: long names that begin alike have files of their own.
        let hash = place.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        name.truncate(NAME_BYTES_MAX);
        name.push_str(&format!("-{hash:016x}"));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calibration(place: &str) -> Calibration {
        Calibration {
            place: place.into(),
            probe_bytes: 3 << 20,
            prime_bytes: 1 << 18,
            quiet: 100_000_000,
            lowest: 90_000_000,
            highest: 120_000_000,
            rounds: 20,
            busy: 50,
            time: 1_700_000_000,
        }
    }

    #[test]
    fn calibrations_are_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let (own, system) = (folder.path().join("own/iogate"), folder.path().join("system"));
        let long = format!("nfs:io1:/{}", "x/".repeat(200));
        for place in ["nfs:io1:/scratch", &long, "a b"] {
            let written = calibration(place);
            let path = written.write(&system).unwrap();
            assert!(path.file_name().unwrap().len() < 255);
            assert_eq!(Calibration::read(place, &[own.clone(), system.clone()]).unwrap(), written);
        }
        let better = Calibration { quiet: 7, ..calibration("a b") };
        better.write(&own).unwrap();
        assert_eq!(Calibration::read("a b", &[own, system.clone()]).unwrap(), better, "the first one counts");
        assert_eq!(fs::read_dir(&system).unwrap().count(), 3, "and nothing else is left there");
    }

    #[test]
    fn a_probe_that_does_not_fit_is_not_begun() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::of(folder.path(), &crate::Settings::read(&|_| None).unwrap()).unwrap();
        for probe_bytes in [99_999 << 40, u64::MAX] {
            let config = BackoffConfig { probe_bytes, ..BackoffConfig::default() };
            let error = Calibration::measure(&place, &config, 1).unwrap_err();
            assert!(matches!(error, ProbeError::NoRoom { .. }) && error.errno() == libc::ENOSPC, "{error}");
            assert!(error.to_string().contains(&format!("probes of {probe_bytes} bytes")), "{error}");
        }
    }

    #[test]
    fn what_is_none_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let directories = [folder.path().to_owned()];
        let error = Calibration::read("scratch", &directories).unwrap_err();
        assert_eq!(error.errno(), libc::ENODATA);
        assert!(error.to_string().contains("iogate probe --calibrate"), "{error}");
        for text in ["", "{}", r#"{"place":"scratch","quiet":1}"#] {
            fs::write(folder.path().join("scratch.json"), text).unwrap();
            let error = Calibration::read("scratch", &directories).unwrap_err();
            assert!(matches!(&error, ProbeError::Calibration { .. }), "{text}: {error}");
        }
        let zero = Calibration { quiet: 0, ..calibration("scratch") };
        zero.write(folder.path()).unwrap();
        assert!(Calibration::read("scratch", &directories).is_err());
    }

    #[test]
    fn unsteady_is_what_probes_would_call_busy() {
        assert!(calibration("a").is_steady());
        assert!(!Calibration { busy: 101, ..calibration("a") }.is_steady());
    }
}
